"""Layers priced one by one: by hand, and never below what no schedule undercuts."""

from __future__ import annotations

import pytest
from machines import machine
from networks import Net

from compiler.api import CompileOptions, Outlook, bound_of, compile_model, outlook, prepared
from simmodel.arch import Arch

OPTIONS = CompileOptions(dtype="fp16")


def taken(count: int, arch: Arch, size: int = 8) -> float:
    """Cycles of convolutions of 1 x 1 over 32 channels, one behind the other."""
    net = Net()
    x = net.input(1, 32, size, size)
    for _ in range(count):
        x = net.op("Conv", x, net.weight(32, 32, 1, 1))
    return outlook(prepared(net.model(x), "net"), arch, OPTIONS).cycles


def test_a_layer_takes_its_products_or_its_bytes_by_hand() -> None:
    """64 pixels in 16 blocks of 4, 32 filters in 4 of 8, 32 channels in 4 of 8: 256 cycles and what
    comes before the first. Input and weights of 4096 and 2048 bytes, and 4096 of the result, are
    640 cycles of DRAM at 16 bytes."""
    assert taken(1, machine(types=("fp16",))) == (4096 + 2048 + 4096) / 16


def test_maps_that_fit_stay_on_the_chip_by_hand() -> None:
    """The first layer loads the input and its weights: 384 cycles of DRAM, which is more than it
    computes. The weights of the last have come while the second computed, and its result is less
    than it computes; so both take their products, and the start-ups before them."""
    arch = machine(types=("fp16",))
    inner = taken(4, arch) - taken(3, arch)
    assert 256 <= inner < 384
    assert taken(3, arch) == (4096 + 2048) / 16 + 2 * inner


def test_large_maps_pass_between_neighbours_where_some_rows_have_room_by_hand() -> None:
    """Four rows of 64 pixels and of 32 channels are 16 KiB: two of them beside the weights of two
    layers are more than half of 64 KiB, so that every map is stored and loaded. Half of 128 KiB has
    room for them, not for a map of 256 KiB: input and result cross alone."""
    map_, weights = 64 * 64 * 32 * 2, 2048
    arch = machine(types=("fp16",))
    assert taken(3, arch, 64) == 3 * (2 * map_ + weights) / 16
    larger = machine(types=("fp16",), local={"size": 128 << 10})
    inner = taken(4, larger, 64) - taken(3, larger, 64)
    assert inner > (map_ + weights) / 16  # it computes for longer than its bytes take
    assert taken(3, larger, 64) == 3 * inner


def test_what_the_copy_engine_takes_bounds_what_dram_gives_by_hand() -> None:
    """Every map of 256 KiB crosses: at 4 bytes a cycle four times as long as at 16."""
    slow = machine(types=("fp16",), copy={"bandwidth": "4 B/cycle"})
    quick = machine(types=("fp16",))
    assert taken(3, slow, 64) == 4 * taken(3, quick, 64)


@pytest.mark.parametrize("size", [8, 24, 64])
def test_more_memory_never_takes_longer(size: int) -> None:
    sizes = [machine(types=("fp16",), local={"size": 1 << n}) for n in range(13, 21)]
    found = [taken(4, arch, size) for arch in sizes]
    assert found == sorted(found, reverse=True)
    assert size == 8 or found[-1] < found[0]


def test_machines_that_differ_in_size_and_rate_share_what_they_bind() -> None:
    """Nests and work are made once for four machines, and work again for one of another array."""
    net = Net()
    x = net.input(1, 16, 12, 12)
    y = net.op("Conv", net.op("Relu", x), net.weight(24, 16, 3, 3), pads=[1] * 4)
    model = prepared(net.model(net.op("Add", y, y)), "net")
    same = [machine(types=("fp16",), cores=cores) for cores in (1, 2)]
    same += [machine(types=("fp16",), local={"size": size}) for size in (16384, 1 << 20)]
    other = machine(types=("fp16",), matrix={"cols": 16})
    network = Outlook(model)
    found = [network.on(arch, OPTIONS) for arch in same]
    assert network.bound.found == 3
    (demands,) = network.bound.kept.values()
    assert demands.known.found == 3
    found.append(network.on(other, OPTIONS))
    assert len({estimate.cycles for estimate in found[-2:]}) == 2
    assert found == [outlook(model, arch, OPTIONS) for arch in (*same, other)]


@pytest.mark.parametrize("over", [{"cores": 2}, {"local": {"banks": 1}}, {"accumulators": 4096}])
def test_it_is_never_below_the_bound(over: dict[str, int]) -> None:
    arch = machine(types=("fp16",), **over)  # type: ignore[arg-type]
    net = Net()
    x = net.input(1, 16, 12, 12)
    y = net.op("Conv", net.op("Relu", x), net.weight(24, 16, 3, 3), pads=[1] * 4)
    model = net.model(net.op("Add", y, y))
    bound = bound_of(compile_model(model, arch, OPTIONS), arch)
    assert outlook(prepared(model, "net"), arch, OPTIONS).cycles >= bound.cycles
