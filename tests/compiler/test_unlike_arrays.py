"""Two unlike arrays in a core: which of them a product is given, and that both work at the same
time.

An array of 16 x 16 x 16 multiplies, and one of 16 pixels by 16 channels is there for depthwise
products: times are worked out by hand.
"""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from machines import WRITEBACK, machine
from networks import Net, check

from compiler.estimate.network_bound import bound_of
from simmodel.arch.record import Arch
from simmodel.isa import MatrixInstruction
from simmodel.isa.base import instructions
from simmodel.trace import Trace

LARGE: dict[str, Any] = {"rows": 16, "cols": 16, "depth": 16}
SMALL: dict[str, Any] = {"kind": "cube", "rows": 16, "cols": 16, "depth": 1, "depthwise": True}


def unlike(rates: tuple[float, float] = (1.0, 1.0), **fields: Any) -> Arch:
    """A core whose two arrays multiply at these `rates`; `fields` of the small one."""
    large, small = rates
    return machine(
        types=("fp16",), matrix={**LARGE, "rate": {"fp16": large}}, vector={"lanes": 2},
        local={"size": 1 << 18, "banks": 16, "bank_width": 64},
        engines={"small": {**SMALL, "rate": {"fp16": small}, **fields}},
    )  # fmt: skip


def separable() -> onnx.ModelProto:
    """A depthwise 3 x 3 convolution of 16 channels, and a dense one of 1 x 1 to 64."""
    net = Net()
    x = net.op("Conv", net.input(1, 16, 64, 64), net.weight(16, 1, 3, 3), group=16, pads=[1] * 4)
    return net.model(net.op("Conv", x, net.weight(64, 16, 1, 1)))


def busy(trace: Trace) -> dict[str, int]:
    return {e.engine: e.busy for e in trace.engines if e.busy}


@pytest.mark.parametrize(
    ("fields", "dense", "small"),
    [
        # 256 blocks of 16 pixels: 9 positions of all channels, or on the large one 16 channels one
        # after another, whose 9 positions fill one fold; the dense one takes 4 folds of columns.
        ({}, 256 * 4, 256 * 9),
        ({"rate": {"fp16": 0.5}}, 256 * (16 + 4), 0),
        ({"depthwise": False}, 256 * (16 + 4), 0),
        ({"rate": {"int8": 1.0}}, 256 * (16 + 4), 0),
        # With a depth of 8 it takes 9 positions in 2 steps, two of them half of the blocks each.
        ({"depth": 8, "units": 2}, 256 * 4, 128 * 2),
        # A larger one gets the dense product too: two sets of columns.
        ({"depth": 16, "cols": 32}, 0, 256 * (1 + 2)),
    ],
)
def test_a_product_runs_where_it_takes_fewer_cycles(
    fields: dict[str, Any], dense: int, small: int
) -> None:
    found = busy(check(separable(), unlike(**fields), "fp16").trace)
    assert (found.get("matrix", 0), found.get("small", 0)) == (dense, small)


def test_both_work_at_the_same_time() -> None:
    """Each takes 64 k cycles, one for what the other makes of the tile before."""
    arch = unlike((1 / 64, 9 / 256))
    found = check(separable(), arch, "fp16")
    assert (busy(found.trace)["matrix"], busy(found.trace)["small"]) == (65536, 65536)
    assert 65536 < found.trace.cycles < 65536 * 1.2
    assert bound_of(found.compiled, arch).matrix == pytest.approx(65536)


@pytest.mark.parametrize(("group", "engine"), [(1, "matrix"), (16, "small")])
@pytest.mark.parametrize("able", ["matrix", "small"])
def test_results_are_looked_up_by_the_array_of_their_product(
    group: int, engine: str, able: str
) -> None:
    """A sigmoid behind a convolution goes to its array where that has tables."""
    plain = {"rate": {"int8": 1.0}, "writeback": WRITEBACK}
    arrays = {"matrix": LARGE | plain, "small": SMALL | plain}
    arrays[able] |= {"writeback": (*WRITEBACK, "table")}
    arch = machine(
        types=("int8",), matrix=arrays["matrix"], engines={"small": arrays["small"]},
        vector={"lanes": 16, "table": "8 cycles"},
    )  # fmt: skip
    net = Net(quantized=True)
    weights = net.weight(16, 16 // group, 3, 3)
    x = net.op("Conv", net.input(1, 16, 8, 8), weights, group=group, pads=[1] * 4)
    found = check(net.model(net.op("Sigmoid", x)), arch, "int8")
    flat = [i for core in found.compiled.program.cores for i, *_ in instructions(core)]
    products = [i for i in flat if isinstance(i, MatrixInstruction)]
    assert {i.engine for i in products} == {engine}
    assert any(i.table for i in products) == (able == engine)
