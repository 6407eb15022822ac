"""Bindings: the engine of each operator by cycles or as asked for, checked, and wrong text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import onnx
import pytest
from machines import machine
from networks import Net, check

from compiler.context import CompileOptions, Context
from compiler.explain.forms import engine_report
from compiler.options import Stages
from compiler.passes import ContractBroken
from compiler.pipeline import bind, fuse_tails, nests, prepared
from compiler.schedule_ir.layer import Binding, Layer
from compiler.target.bind import Bind, check_bound
from compiler.tensor_ir.nest import Access, Dim, Nest, Storage, Tensor, at, row_major

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
    [
        ({}, "vector"),
        ({"startup": "40 cycles", "rank": 1, "window": False}, "matrix"),
    ],
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
    arch = machine(types=("fp32",))
    scalar = arch.scalar.model_copy(update={"types": ("fp32",)})
    arch = arch.model_copy(update={"scalar": scalar})
    for engine in ("vector", "scalar"):
        said = engine_report(nest, layer, Binding(engine), arch)
        assert said.taken == engine
        assert {"vector", "scalar", "host"} - {engine} <= {o.what for o in said.rejected}
