"""Layers priced one by one: by hand, and never below what no schedule undercuts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machines import machine
from networks import Net

from archgen.energy.model import count_events
from compiler.api import CompileOptions, QuickEstimator, bound_of, compile_model, prepared
from compiler.estimate.core_partition import Computed, CorePartition, LayerPartition
from compiler.options import Stages
from compiler.target.place_on_host import PlaceOnHost
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate
from simmodel.trace import Events

OPTIONS = CompileOptions(dtype="fp16")


def taken(count: int, arch: Arch, size: int = 8) -> float:
    """Cycles of convolutions of 1 x 1 over 32 channels, one behind the other."""
    net = Net()
    x = net.input(1, 32, size, size)
    for _ in range(count):
        x = net.op("Conv", x, net.weight(32, 32, 1, 1))
    return QuickEstimator(prepared(net.model(x), "net")).on(arch, OPTIONS).cycles


def test_a_layer_takes_its_products_or_its_bytes_by_hand() -> None:
    """64 pixels in 16 blocks of 4, 32 filters in 4 of 8, 32 channels in 4 of 8: 256 cycles and what
    comes before the first. Weights of 2048 bytes take 128 cycles of DRAM behind a latency of 20,
    input and result of 4096 twice as many each, which is more. The input is read as it lies,
    channel by channel: to turn it would take 2048 cycles. (Simulated: 892.)"""
    assert taken(1, machine(types=("fp16",))) == (20 + 2048 / 16) + 2 * (20 + 4096 / 16)


def test_maps_that_fit_stay_on_the_chip_by_hand() -> None:
    """The first layer loads the input and its weights, which is more than it computes. The weights
    of the last have come while the second computed, and its result is less than it computes; so
    both take their products, and what comes before the first. (Simulated: 1692.)"""
    arch = machine(types=("fp16",))
    inner = taken(4, arch) - taken(3, arch)
    assert 256 <= inner < 384
    loaded = (20 + 2048 / 16) + (20 + 4096 / 16)
    assert taken(3, arch) == loaded + 2 * inner == 1128


def test_large_maps_pass_between_neighbours_where_some_rows_have_room_by_hand() -> None:
    """Four rows of 64 pixels and of 32 channels are 16 KiB: two of them beside the weights of two
    layers are more than half of 64 KiB, so that every map is stored and loaded. Half of 128 KiB has
    room for them, not for a map of 256 KiB: input and result cross alone."""
    map_, weights = 64 * 64 * 32 * 2, 2048
    arch = machine(types=("fp16",))
    assert taken(3, arch, 64) == 3 * (2 * 20 + 2 * map_ / 16 + 20 + weights / 16)
    larger = machine(types=("fp16",), local={"size": 128 << 10})
    inner = taken(4, larger, 64) - taken(3, larger, 64)
    assert inner > (map_ + weights) / 16  # it computes for longer than its bytes take
    assert taken(3, larger, 64) == 3 * inner


def test_what_the_host_reads_or_makes_goes_through_dram() -> None:
    """A map that the host reads beside a layer is stored and loaded, what it makes is loaded."""
    arch, moved = machine(types=("fp16",)), list[tuple[int, int]]()
    options = replace(OPTIONS, stages=Stages(host=PlaceOnHost(kept="Asin")))
    for both in (False, True):
        net = Net()
        x = net.op("Relu", net.input(1, 16, 4, 4))
        y = net.op("Asin", x) if both else x
        z = net.op("Conv", x, net.weight(16, 16, 1, 1))
        model = net.model(net.op("Add", z, y))
        found = QuickEstimator(prepared(model, "net", options.stages)).on(arch, options)
        assert found.events is not None and found.host_ops == both
        moved.append((found.events.read["dram"], found.events.written["dram"]))
    (read, written), (more, out) = moved
    assert more - read == 2 * (out - written) > 0


def test_cores_load_all_constants_or_compute_some_channels_by_hand() -> None:
    """Constants of 4096 bytes, 16 of DRAM for all cores: by rows each of two loads all of them, at
    8 bytes a cycle; by channels half, and then gets the half of a map of 128 bytes that is not its
    own: stored by the other, 64 bytes, and all of it loaded."""
    arch = machine(types=("fp16",), cores=2)
    parts = CorePartition(arch, 2, None)
    (rows,) = parts.of([Computed(2000.0, 1000.0, 2000.0)], [[4096]], [128])
    assert rows == LayerPartition(1000.0, 20 + 4096 / 8, 2 * 4096, 0.0, 2 * 4096)
    (channels,) = parts.of([Computed(2000.0, 2000.0, 1000.0)], [[4096]], [128])
    passing = 20 + 64 / 8 + 20 + 128 / 8
    assert channels == LayerPartition(1000.0, 20 + 2048 / 8, 4096, passing, 4096, 128)


def test_what_takes_energy_is_what_a_run_counts() -> None:
    """A product that is done in one piece: the same products and bytes of every memory, and of the
    sum behind it the same elements, but no more instructions than there have to be."""
    net = Net()
    x = net.input(1, 16, 4, 4)
    y = net.op("Conv", x, net.weight(16, 16, 1, 1))
    for last, more in ((y, 0), (net.op("Add", y, x), 512)):
        model, arch = net.model(last), machine(types=("fp16",))
        program = compile_model(model, arch, OPTIONS).program
        ran = Events.total(count_events(program, simulate(program, arch)))
        found = QuickEstimator(prepared(model, "net")).on(arch, OPTIONS).events
        assert found is not None
        assert 0 < found.instructions <= ran.instructions
        # The sum's operand is copied once more on the chip.
        found.written["local"] += more
        assert replace(found, instructions=ran.instructions) == ran


@pytest.mark.parametrize("size", [8, 24, 64])
def test_more_memory_never_takes_longer(size: int) -> None:
    sizes = [machine(types=("fp16",), local={"size": 1 << n}) for n in range(13, 21)]
    found = [taken(4, arch, size) for arch in sizes]
    assert found == sorted(found, reverse=True)
    assert size == 8 or found[-1] < found[0]


def test_machines_share_stages_and_layers_that_read_the_same_of_them() -> None:
    """Nests are made once for machines of other sizes and rates, layers once for each number of
    cores; an array of more columns is asked again, and finds the same nests."""
    net = Net()
    x = net.input(1, 16, 12, 12)
    y = net.op("Conv", net.op("Relu", x), net.weight(24, 16, 3, 3), pads=[1] * 4)
    model = prepared(net.model(net.op("Add", y, y)), "net")
    same = [machine(types=("fp16",), cores=cores) for cores in (1, 2)]
    same += [machine(types=("fp16",), local={"size": size}) for size in (16384, 1 << 20)]
    same.append(machine(types=("fp16",), latency=200))
    network = QuickEstimator(model)
    found = [network.on(arch, OPTIONS) for arch in same]
    (memo,) = network.memos.values()

    def made(function: str) -> list[object]:
        return [value for (asked, *_), value in memo.kept.items() if asked.value[0] == function]

    kinds = len(network.numbers)
    assert len(made("layer")) == 2 * kinds
    assert len(memo.kept) == 21 + 2 * kinds and memo.found == 4 * 21 + 3 * kinds
    same.append(machine(types=("fp16",), matrix={"cols": 16}))
    found.append(network.on(same[-1], OPTIONS))
    assert len(made("bind")) == 2
    assert len({id(graph) for graph in made("layouts")}) == 1
    assert len({estimate.cycles for estimate in found[-2:]}) == 2
    assert found == [QuickEstimator(model).on(arch, OPTIONS) for arch in same]


@pytest.mark.parametrize("over", [{"cores": 2}, {"local": {"banks": 1}}, {"accumulators": 4096}])
def test_it_is_never_below_the_bound(over: dict[str, int]) -> None:
    arch = machine(types=("fp16",), **over)  # type: ignore[arg-type]
    net = Net()
    x = net.input(1, 16, 12, 12)
    y = net.op("Conv", net.op("Relu", x), net.weight(24, 16, 3, 3), pads=[1] * 4)
    model = net.model(net.op("Add", y, y))
    bound = bound_of(compile_model(model, arch, OPTIONS), arch)
    assert QuickEstimator(prepared(model, "net")).on(arch, OPTIONS).cycles >= bound.cycles
