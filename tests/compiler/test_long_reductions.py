"""Reductions of more elements than a tile can hold are made of partial results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from networks import Net, check, feeds_of, reference

from archgen.check.reference import run_node
from compiler.codegen.nodes import instructions
from compiler.context import CompileOptions, Context
from compiler.lowering.lower import Lower
from compiler.options import Stages
from compiler.pipeline import nests, prepared
from compiler.tensor_ir.interpreter import run

SMALL = machine(local={"size": 65536})


@pytest.mark.parametrize(
    ("kind", "shape", "axes"),
    [
        ("ReduceMax", (1, 40, 30, 32), (0, 1, 2, 3)),
        ("ReduceMin", (80002,), (0,)),
        ("ReduceMean", (2, 3, 190, 190), (2, 3)),
        ("ReduceSum", (3, 33000), (1,)),
    ],
)
def test_what_is_larger_than_local_memory_is_reduced(
    kind: str, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    net = Net()
    source = net.op("Sin", net.input(*shape))
    check(net.model(net.op(kind, source, net.const(axes, "i8"))), SMALL, "fp32")


def test_the_range_of_a_large_tensor_is_found_for_dynamic_quantization() -> None:
    net = Net()
    source = net.op("Sin", net.input(1, 150, 160))
    net._raw("DynamicQuantizeLinear", [source], (1, 150, 160))
    code = ["scale", "zero"]
    net.nodes[-1].output.extend(code)
    real = net._raw("DequantizeLinear", [net.nodes[-1].output[0], *code], (1, 150, 160))
    check(net.model(real), SMALL, "int8")


@settings(max_examples=40)
@given(st.data())
def test_partial_results_of_any_axes_give_the_same(data: st.DataObject) -> None:
    extents = st.sampled_from((1, 2, 3, 7, 12, 30))
    shape = tuple(data.draw(st.lists(extents, min_size=1, max_size=4)))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    net = Net()
    source = net.op(
        "Transpose", net.input(*shape), perm=data.draw(st.permutations(range(len(shape))))
    )
    kind = data.draw(st.sampled_from(("ReduceMax", "ReduceSum", "ReduceMean", "ReduceL2")))
    kept = data.draw(st.integers(0, 1))
    model = net.model(net.op(kind, source, net.const(sorted(axes), "i8"), keepdims=kept))
    options = CompileOptions(dtype="fp32", stages=Stages(lower=Lower(longest=4)))
    graph = nests(prepared(model, "net"), Context(SMALL, options))
    feeds = feeds_of(model)
    (want,), (got,) = reference(model, feeds).values(), run(graph, feeds, run_node).values()
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [("GlobalAveragePool", {}), ("AveragePool", {"kernel_shape": [3, 3]})],
)
def test_integers_count_the_steps_between_the_pieces_of_a_mean(
    kind: str, attributes: dict[str, list[int]]
) -> None:
    """An engine of integers alone adds up whole steps of its input and rounds once, at the end."""
    net = Net(quantized=True)
    model = net.model(net.op(kind, net.input(1, 4, 12, 12), **attributes))
    vector = {"types": ("int8", "uint8", "int32"), "rank": 1, "max_extent": 16, "window": False}
    made = check(model, machine(types=("int8",), vector=vector), "int8").compiled
    assert kind not in {call.kind for call in made.host}
    assert "ReduceMean" not in {call.kind for call in made.host}
    reduces = [item for core in made.program.cores for item in instructions(core)]
    assert {item.dst.dtype for item in reduces if item.form.startswith("vector.")} == {
        "int8", "int32",
    }  # fmt: skip
