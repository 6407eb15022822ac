"""Depthwise convolutions on arrays without a depthwise mode: several channels as one product.

Cycles by hand, on a cube that takes ten pixels, 32 filters and 32 products of each in a cycle; it
is 256 times slower than that, so that memory does not matter.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import machine, machines
from nest_reader import read_again
from networks import Net, check, refused

from compiler.context import CompileOptions, Context
from compiler.errors import DoesNotFit, UnsupportedModel
from compiler.explain.report import report
from compiler.memory.on_chip import PlacedGroup
from compiler.options import Stages
from compiler.pipeline import nests, prepared
from compiler.target.group_depthwise import GroupDepthwise
from compiler.tensor_ir.nest import Nest
from simmodel.arch.record import Arch

SLOW = 256
CUBE = {"kind": "cube", "rows": 10, "cols": 32, "depth": 32, "granularity": "conv"}
RATE = {"int8": 1 / SLOW, "fp16": 1 / SLOW}
WRITEBACK = ("bias", "clip", "requantize")


def narrow(**matrix: object) -> Arch:
    """An array that finishes integers, beside a vector engine of one lane."""
    return machine(
        types=("int8", "fp16"),
        matrix={**CUBE, "im2col": False, "writeback": WRITEBACK, "rate": RATE, **matrix},
        vector={"lanes": 1, "cost": {"multiply": SLOW}},
        local={"size": 1 << 20, "banks": 64, "bank_width": 64},
    )  # fmt: skip


def window(net: Net, x: str, channels: int, kernel: int = 3, stride: int = 1) -> str:
    weight = net.weight(channels, 1, kernel, kernel)
    return net.op(
        "Conv", x, weight, group=channels, pads=[kernel // 2] * 4, strides=[stride] * 2
    )  # fmt: skip


def grouped(arch: Arch, dtype: str, channels: int) -> Nest:
    """The convolution as the compiler takes it."""
    net = Net(quantized=dtype == "int8")
    options = CompileOptions(dtype=dtype)
    graph = nests(
        prepared(net.model(window(net, net.input(1, channels, 10, 10), channels)), "m"),
        Context(arch, replace(options, dtype=dtype)),
    )
    (nest,) = (s for s in graph.steps if isinstance(s, Nest) and s.function == "mul" and s.reduce)
    assert read_again(graph) == graph
    return nest


@pytest.mark.parametrize(
    ("dtype", "matrix", "channels", "together"),
    [
        ("int8", {}, 64, 32),  # as many as the array has columns
        ("int8", {}, 48, 24),  # of equal products
        ("int8", {}, 61, 31),  # or of nearly equal ones
        ("int8", {"depthwise": True}, 64, 1),  # 18 folds there, 18 * 32 products here
        ("fp16", {}, 64, 1),  # an infinite channel stays alone
    ],
)
def test_channels_go_together_where_that_is_quicker(
    dtype: str, matrix: dict[str, object], channels: int, together: int
) -> None:
    nest = grouped(narrow(**matrix), dtype, channels)
    assert nest.sparse == together
    assert nest.depthwise


def test_cycles_by_hand() -> None:
    """Two products of 32 channels: of a kernel row, depth 96 is three steps, of 100 pixels ten
    each, so nine positions of ten steps twice. Alone, 64 channels of nine positions would be 5760.
    """
    net, arch = Net(quantized=True), narrow()
    model = net.model(window(net, net.input(1, 64, 10, 10), 64))
    made = check(model, arch, "int8")
    (engine,) = (e for e in made.trace.engines if e.engine == "matrix")
    assert engine.busy == 2 * 9 * 10 * SLOW
    assert made.compiled.program.macs == 100 * 64 * 9  # zeros are no work
    apart = replace(Stages(), depthwise=GroupDepthwise(enabled=False))
    alone = check(model, arch, "int8", CompileOptions(stages=apart))
    assert alone.compiled.program.macs == made.compiled.program.macs
    (engine,) = (e for e in alone.trace.engines if e.engine == "matrix")
    assert engine.busy == 64 * 9 * 10 * SLOW
    (line,) = (y.array for g in report(made.compiled, arch) for y in g.layers if y.array)
    assert line.endswith(
        "cols 32 O, depth 32 O, then i x j, 1 of 32 products counts: 3 % of the array"
    )


def test_layers_share_tiles_with_channels_that_go_together() -> None:
    """Depthwise, project: one group, so that only what the second one makes leaves the chip."""
    arch = machine(
        types=("int8",),
        matrix={**CUBE, "im2col": False, "writeback": WRITEBACK}, vector={"lanes": 1},
        local={"size": 1 << 16, "banks": 64, "bank_width": 64},
    )  # fmt: skip
    net = Net(quantized=True)
    x = window(net, net.input(1, 64, 32, 32), 64)
    model = net.model(net.op("Conv", x, net.weight(8, 64, 1, 1)))
    made = check(model, arch, "int8")
    placed = (step for step in made.compiled.steps if isinstance(step, PlacedGroup))
    groups = [step.plan.schedule.group for step in placed]
    (shared,) = (group for group in groups if any(y.head.sparse > 1 for y in group.layers))
    first, second = (layer for layer in shared.layers if layer.head.macs)
    assert (first.head.sparse, second.head.sparse) == (32, 1)
    assert first.result.name not in shared.results


@settings(max_examples=15)
@given(data=st.data())
def test_channels_together_on_any_machine(data: st.DataObject) -> None:
    arch = data.draw(machines())
    assume("int8" in arch.types)
    pick = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    net = Net(quantized=True)
    channels = pick(4, 6, 7, 16, 24, 37)
    x = net.input(1, channels, 10, 10)
    if pick(True, False):
        x = net.op("Conv", x, net.weight(channels, channels, 1, 1))
    x = window(net, x, channels, pick(2, 3), pick(1, 2))
    if pick(True, False):
        x = net.op("Relu", x)
    if pick(True, False):
        x = net.op("Conv", x, net.weight(5, channels, 1, 1))
    model = net.model(x)
    parts = {
        "vector": arch.vector.model_copy(update={"lanes": 1, "wide_lanes": None}),
        "matrix": arch.matrix.model_copy(update={"depthwise": False}),
    }
    try:
        check(model, arch.model_copy(update=parts), "int8")
    except (DoesNotFit, UnsupportedModel) as why:
        refused(why)
