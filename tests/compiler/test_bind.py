"""Bindings: the engine of each operator by cycles or as asked for, checked, and wrong text.

Depthwise convolutions on arrays without a depthwise mode, several channels as one product: cycles
by hand, on a cube that takes ten pixels, 32 filters and 32 products of each in a cycle; it is 256
times slower than that, so that memory does not matter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import changed, machine, machines
from nest_reader import read_again
from networks import Net, check, may_be_refused

from compiler.context import CompileOptions, Context
from compiler.explain.forms import engine_report
from compiler.explain.report import report
from compiler.memory.on_chip import PlacedGroup
from compiler.options import Stages
from compiler.passes import ContractBroken
from compiler.pipeline import bind, fuse_tails, nests, prepared
from compiler.schedule_ir.layer import Binding, Layer
from compiler.target.bind import Bind, check_bound, possible
from compiler.target.group_depthwise import GroupDepthwise
from compiler.tensor_ir.nest import Access, Dim, Nest, Storage, Tensor, at, row_major
from simmodel.arch.record import Arch

CUBE = {"kind": "cube", "rows": 4, "cols": 16, "depth": 16, "depthwise": True}
ARCH = machine(types=("fp16",), matrix=CUBE, vector={"lanes": 1})


def depthwise() -> onnx.ModelProto:
    """Nine products of each of 64 values of 16 channels."""
    net = Net()
    x = net.input(1, 16, 8, 8)
    return net.model(net.op("Conv", x, net.weight(16, 1, 3, 3), group=16, pads=[1] * 4))


def bound(model: onnx.ModelProto) -> Layer:
    options = CompileOptions(dtype="fp16")
    ctx = Context(ARCH, replace(options, dtype="fp16"))
    (layer,) = bind(fuse_tails(nests(prepared(model, "net"), ctx), ctx), ctx).parts
    assert isinstance(layer, Layer)
    return layer


@pytest.mark.parametrize(
    ("wanted", "engine"), [("quicker", "matrix"), ("matrix", "matrix"), ("vector", "vector")]
)
def test_depthwise_products_run_where_they_are_quicker_or_as_asked_for(
    wanted: Any, engine: str
) -> None:
    """The array takes all channels of four pixels at once, the vector engine one value."""
    options = CompileOptions(stages=Stages(bind=Bind(depthwise=wanted)))
    checked = check(depthwise(), ARCH, "fp16", options)
    busy = {e.engine: e.busy for e in checked.trace.engines}
    assert (busy["matrix"] > 0) == (engine == "matrix")
    assert busy["vector"] >= 9 * 16 * 64 * (engine == "vector")
    program = checked.compiled.program
    assert dict(program.demand.products) == ({"fp16": program.macs} if engine == "matrix" else {})


@pytest.mark.parametrize(
    ("vector", "engine"),
    [({}, "vector"), ({"startup": "40 cycles", "rank": 1, "window": False}, "matrix")],
)
def test_depthwise_products_are_priced_as_instructions_run(
    vector: dict[str, Any], engine: str
) -> None:
    """Full lanes take nine products of 64 pixels in 576 cycles, the array 16 channels by fours in
    4 x 576. One instruction of windows is near the first; without them and with one dimension
    there is one for each of nine positions and eight lines, and each pays 40 cycles."""
    array = {"kind": "cube", "rows": 1, "cols": 4, "depth": 4, "depthwise": True}
    arch = machine(types=("fp16",), matrix=array, vector={"lanes": 16} | vector)
    checked = check(depthwise(), arch, "fp16")
    busy = {e.engine: e.busy for e in checked.trace.engines}
    assert (busy["matrix"] > 0) == (engine == "matrix")
    assert busy[engine] <= 5 * 576


@pytest.mark.parametrize(
    ("lanes", "strides", "engine"),
    [
        (16, (4096, 1, 256, 16), "vector"),  # 4 096 runs of an element, or 256 instructions' worth
        (1, (4096, 1, 256, 16), "copy"),
        (16, (4096, 256, 16, 1), "copy"),  # rows on both sides
    ],
)
def test_a_move_of_elements_apart_runs_where_it_is_quicker(
    lanes: int, strides: tuple[int, ...], engine: str
) -> None:
    """Copy engines handle one run after the other; the vector engine turns what lies on chip."""
    shape = (1, 16, 16, 16)
    whole = Access("x", tuple(map(at, range(4))))
    nest = Nest("y", tuple(Dim(f"d{i}", n) for i, n in enumerate(shape)), 4, "move", (whole,))
    tensors = {
        "x": Tensor("x", shape, "fp16", Storage("x", 0, strides)),
        "y": Tensor("y", shape, "fp16", Storage("y", 0, row_major(shape))),
    }
    arch = machine(types=("fp16",), matrix=CUBE, vector={"lanes": lanes})
    assert [way.engine for way in possible(nest, tensors, arch)] == [engine]


@pytest.mark.parametrize(
    ("ways", "said"),
    [
        ((), "is not bound"),
        ((((Binding("copy")),),), "is bound to copy, which cannot run it"),
        (
            ((Binding("vector"), Binding("matrix", sums="shared")),),
            "vector, matrix, sums in shared",
        ),
    ],
)
def test_layers_bound_to_what_cannot_run_them_are_told(
    ways: tuple[tuple[Binding, ...], ...], said: str
) -> None:
    layer = bound(depthwise())
    check_bound([layer], ARCH)
    with pytest.raises(ContractBroken, match=said):
        check_bound([replace(layer, ways=ways)], ARCH)


def test_every_engine_of_a_weighted_sum_without_channels_has_a_price_or_a_reason() -> None:
    """Products whose weights walk no row: no work for the array, nor a window."""
    nest = Nest(
        "y", (Dim("n", 4), Dim("i", 3), Dim("j", 2)), 1, "mul",
        (Access("x", (at(0), at(1))), Access("w", (at(0), at(2)))), "sum",
    )  # fmt: skip
    shapes = {"x": (4, 3), "w": (4, 2), "y": (4,)}
    tensors = {n: Tensor(n, s, "fp32", Storage(n, 0, row_major(s))) for n, s in shapes.items()}
    layer = Layer(0, (nest,), tensors)
    arch = changed(machine(types=("fp32",)), "scalar", types=("fp32",))
    for engine in ("vector", "scalar"):
        said = engine_report(nest, layer, Binding(engine), arch)
        assert said.taken == engine
        assert {"vector", "scalar", "host"} - {engine} <= {o.what for o in said.rejected}


SLOW = 256
SLOW_CUBE = {"kind": "cube", "rows": 10, "cols": 32, "depth": 32, "granularity": "conv"}
RATE = {"int8": 1 / SLOW, "fp16": 1 / SLOW}
WRITEBACK = ("bias", "clip", "requantize")


def narrow(**matrix: object) -> Arch:
    """An array that finishes integers, beside a vector engine of one lane."""
    return machine(
        types=("int8", "fp16"),
        matrix={**SLOW_CUBE, "im2col": False, "writeback": WRITEBACK, "rate": RATE, **matrix},
        vector={"lanes": 1, "cost": {"multiply": SLOW}},
        local={"size": 1 << 20, "banks": 64, "bank_width": 64},
    )  # fmt: skip


def window(net: Net, x: str, channels: int, kernel: int = 3, stride: int = 1) -> str:
    weight = net.weight(channels, 1, kernel, kernel)
    return net.op(
        "Conv", x, weight, group=channels, pads=[kernel // 2] * 4, strides=[stride] * 2
    )  # fmt: skip


def grouped_by(arch: Arch, dtype: str, channels: int) -> Nest:
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
    nest = grouped_by(narrow(**matrix), dtype, channels)
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
        matrix={**SLOW_CUBE, "im2col": False, "writeback": WRITEBACK}, vector={"lanes": 1},
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
    arch = changed(changed(arch, "vector", lanes=1, wide_lanes=None), "matrix", depthwise=False)
    with may_be_refused():
        check(model, arch, "int8")
