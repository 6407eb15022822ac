"""Borders on the vector engine: filled when that holds up neither products nor their readers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest
from doubles import AnyTiles, Eager
from machines import machine
from networks import Net

from compiler.api import CompileOptions, CompileResult, compile_model
from compiler.options import Stages
from simmodel.isa import Item, Loop, Splat, Sync

ARCH = machine(
    types=("int8",), matrix={"writeback": ["bias", "clip", "requantize"]}, vector={"lanes": 2},
    local={"size": 16384},
)  # fmt: skip


def grouped(reader: str) -> CompileResult:
    """A convolution whose result the vector engine, or the matrix engine, reads with a border."""
    net = Net(quantized=True)
    x = net.op("Conv", net.input(1, 8, 30, 30), net.weight(8, 8, 3, 3))
    if reader == "vector":
        y = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    else:
        y = net.op("Conv", x, net.weight(8, 8, 3, 3), pads=[1] * 4)
    stages = Stages(partition=Eager(chance=1.0), tile=AnyTiles(rolling=False))
    return compile_model(net.model(y), ARCH, CompileOptions(stages=stages))


def worked(stream: Sequence[Item]) -> Iterator[str]:
    """Engines in the order of the stream; fillings of borders by that name."""
    for item in stream:
        if isinstance(item, Loop):
            yield from worked(item.body)
        elif item.engine in ("matrix", "vector") and not isinstance(item, Sync):
            yield "border" if isinstance(item, Splat) else item.engine


@pytest.mark.parametrize(("reader", "around"), [("vector", "matrix B vector"),
                                                ("matrix", "vector B matrix")])  # fmt: skip
def test_products_do_not_wait_for_borders_that_the_vector_engine_reads(
    reader: str, around: str
) -> None:
    made = grouped(reader)
    (decision,) = made.decisions
    assert decision.schedule.loops  # tiles, of which the next is begun while this one is read
    order = " ".join(worked(made.program.cores[0]))
    shown = re.sub(r"border( border)*", "B", order)
    assert shown.count("B") == shown.count(around) == 2
