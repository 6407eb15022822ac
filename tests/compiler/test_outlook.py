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
    """Of three layers the first loads the input and its weights, the last stores the result; half
    of 64 KiB has room for maps of 4096 bytes, not for those of 64 x 64 pixels."""
    arch = machine(types=("fp16",))
    first, last = (4096 + 2048) / 16, (2048 + 4096) / 16
    alone = taken(3, arch) - first - last
    assert alone == taken(4, arch) - first - last - alone
    assert 256 <= alone < 640  # its products, and the start-ups before them
    map_, weights = 64 * 64 * 32 * 2, 2048
    assert taken(3, arch, 64) == 3 * (2 * map_ + weights) / 16


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
