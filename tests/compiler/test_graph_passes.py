"""Text cases of every graph pass, each compared as text and evaluated before and after.

A case is `tests/cases/<pass>/<name>.txt`: a graph in ONNX's text syntax, a line `----`, and the
graph that the pass makes of it. Named dimensions are open, of 4, 6, 8 positions and so on.
`UPDATE_CASES=1 pytest tests/compiler/test_graph_passes.py` rewrites what stands below the line.

Reshapes that merge open axes: what each axis of their results is made of.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from evaluate import evaluate
from hypothesis import given
from hypothesis import strategies as st
from networks import cleaned
from one_node import reference

from compiler.frontend.canonicalize.symbolic_axes import (
    Piece,
    Pieces,
    extents,
    has_gaps,
    mark_open,
    merged,
    open_axes,
    pieces_of,
)
from compiler.frontend.importer import load
from compiler.frontend.rewrite import ARCHGEN, COMPOSITE, ORIGIN, Array, GraphPass
from compiler.options import GRAPH_PASSES
from compiler.passes import PassFailed, run_pass, run_passes

CASES = Path(__file__).parents[1] / "cases"
PASSES = {step.name: step for step in GRAPH_PASSES}
FILES = sorted(path for name in PASSES for path in (CASES / name).glob("*.txt"))
HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>\n'


def test_every_pass_has_cases() -> None:
    assert PASSES.keys() == {path.parent.name for path in FILES}


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text if text.startswith("<") else HEADER + text)


def loaded(text: str, sizes: Iterable[int] = range(4, 99, 2)) -> ir.Model:
    """The graph of a case, of whose named dimensions there are `sizes`."""
    dims = [d for port in parse(text).graph.input for d in port.type.tensor_type.shape.dim]
    names = dict.fromkeys(dim.dim_param for dim in dims if dim.dim_param)
    edge = dict(zip(names, sizes, strict=False))

    def at(sizes: dict[str, int]) -> ir.Model:
        proto = parse(text)
        for port in proto.graph.input:
            for dim in port.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_value = sizes[dim.dim_param]
        return load(proto, "g")

    model = at(edge)
    mark_open(model, open_axes(model, [at({**edge, name: edge[name] + 1}) for name in edge]))
    return model


def printed(model: ir.Model) -> str:
    proto = ir.to_proto(model)
    for node in proto.graph.node:
        del node.metadata_props[:]
    del proto.graph.value_info[:]
    return onnx.printer.to_text(proto.graph)


def random_inputs(model: ir.Model, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    inputs = {}
    for value in model.graph.inputs:
        assert value.dtype is not None and value.shape is not None
        shape = value.shape.numpy()
        if value.dtype.is_floating_point():
            inputs[str(value.name)] = 3 * rng.standard_normal(shape).astype(value.dtype.numpy())
        else:
            lo, hi = value.dtype.min, value.dtype.max
            inputs[str(value.name)] = rng.integers(lo, hi + 1, shape).astype(value.dtype.numpy())
    return inputs


def outputs(model: ir.Model, inputs: dict[str, Array]) -> list[Array]:
    """What a model computes: by ONNX Runtime, where it knows all operators."""
    if any(node.domain == ARCHGEN for node in model.graph):
        return list(evaluate(model, inputs).values())
    return reference(ir.to_proto(model), inputs)


def assert_same(want: list[Array], got: list[Array]) -> None:
    for a, b in zip(want, got, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        tolerance = {"f2": 4e-3, "f4": 1e-5}.get(a.dtype.str[1:], 1)
        scale = max(1.0, float(np.abs(a.astype(np.float64)).max())) if a.dtype.kind == "f" else 1
        assert np.abs(a.astype(np.float64) - b.astype(np.float64)).max() <= tolerance * scale


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_case(path: Path) -> None:
    before, expected = path.read_text().split("----\n")
    model = loaded(before)
    text_before = printed(model)
    step = PASSES[path.parent.name]
    result = run_pass(step, model)
    after = printed(result.ir)
    assert result.changed == (after != text_before)
    if os.environ.get("UPDATE_CASES"):
        path.write_text(f"{before}----\n{after}\n")
    else:
        assert after == expected.rstrip("\n"), "did you forget UPDATE_CASES=1?"
    for seed in range(3):
        inputs = random_inputs(model, seed)
        want = outputs(loaded(before), inputs)
        assert_same(want, outputs(result.ir, inputs))
    assert not run_pass(step, result.ir).changed  # a second run changes nothing


@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (3, 1)])
@pytest.mark.parametrize(
    "path", sorted((CASES / "keep-axes-apart").glob("*.txt")), ids=lambda p: p.stem
)
def test_open_axes_of_one_position_are_apart_too(path: Path, sizes: tuple[int, int]) -> None:
    before = path.read_text().split("----\n")[0]
    model = loaded(before, sizes)
    inputs = random_inputs(model, 0)
    want = outputs(loaded(before, sizes), inputs)
    assert_same(want, outputs(run_pass(PASSES["keep-axes-apart"], model).ir, inputs))


@dataclass(frozen=True)
class Stumble(GraphPass):
    """x => x, but for Neg."""

    def rewrite(self, node: ir.Node) -> bool:
        if node.op_type == "Neg":
            raise KeyError("z")
        return False


def test_an_error_within_a_graph_pass_names_the_node() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Relu (x) [minus] y = Neg (a) }"
    with pytest.raises(PassFailed) as caught:
        run_passes([Stumble()], load(parse(text), "g"))
    said = "stumble (apply) on node 'minus' (ai.onnx.Neg): KeyError: 'z'; ran before it: nothing"
    assert str(caught.value) == said


def test_a_graph_without_origins_is_refused() -> None:
    model = load(parse("g (float[2] x) => (float[2] y) { y = Relu (x) }"), "g")
    next(iter(model.graph)).metadata_props.clear()
    with pytest.raises(PassFailed, match=r"fold-pad \(requires\): Relu_0: no origin"):
        run_pass(PASSES["fold-pad"], model)


def test_composites_mark_their_parts_and_origins_survive_fusion() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { s = Sigmoid (x) m = Mul (s, x) y = Softmax (m) }"
    model = cleaned(load(parse(text), "g"))
    first, *rest = model.graph
    assert first.metadata_props[ORIGIN] == "Sigmoid_0+Mul_1"
    assert {node.metadata_props[COMPOSITE] for node in rest} == {"Softmax_2"}
    assert {node.metadata_props[ORIGIN] for node in rest} == {"Softmax_2"}


OPEN = (7, 11, 13, 17)
"""Extents of open axes, which no fixed one is a multiple of."""


def axes(shape: Sequence[int]) -> Pieces:
    return tuple(Piece(extent, extent in OPEN) for extent in shape)


def runs(source: Sequence[int], target: Sequence[int]) -> list[list[int]] | None:
    found = merged(axes(source), axes(target))
    return None if found is None else [[piece.extent for piece in pieces] for pieces in found]


def test_open_axes_that_become_one_are_kept() -> None:
    assert runs([7, 11, 12], [77, 12]) == [[7, 11], [12]]
    assert runs([7, 11, 12], [77, 3, 4]) == [[7, 11], [3], [4]]
    assert runs([7, 11, 12], [77, 1, 12]) == [[7, 11], [1], [12]]
    assert runs([7, 11, 12], [1, 77, 12]) == [[1], [7, 11], [12]]
    assert runs([5, 11, 12], [55, 12]) == [[5, 11], [12]]
    assert runs([7, 11, 12], [77 * 3, 4]) == [[7, 11, 3], [4]]
    assert runs([7, 11, 12], [77 * 12]) == [[7, 11, 12]]
    assert runs([7, 1, 11, 12], [77, 12]) == [[7, 1, 11], [12]]


def test_axes_without_gaps_are_merged() -> None:
    assert runs([7, 5, 12], [35, 12]) == [[35], [12]]
    assert runs([7, 11, 12], [7, 11, 3, 4]) == [[7], [11], [3], [4]]
    assert runs([1, 7, 12], [7, 12]) == [[7], [12]]
    assert runs([7, 11, 3, 4], [7, 33, 4]) == [[7], [33], [4]]
    assert runs([5, 6, 12], [30, 12]) == [[30], [12]]


def test_what_cannot_be_told_is_nothing() -> None:
    assert runs([7, 11, 12], [11, 7, 12]) is None
    assert runs([7, 11, 10], [77 * 5 // 7, 14]) is None
    assert runs([0, 11], [11, 0]) is None


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    """Extents of axes, and how they are merged."""
    fixed, open_axes = st.sampled_from((2, 3, 4)), st.sampled_from(OPEN)
    source = draw(st.lists(st.one_of(fixed, open_axes), min_size=1, max_size=6))
    groups: list[list[int]] = []
    for extent in source:
        if groups and draw(st.booleans()):
            groups[-1].append(extent)
        else:
            groups.append([extent])
    return source, groups


@given(reshapes())
def test_each_axis_is_as_long_as_what_it_is_made_of(net: tuple[list[int], list[list[int]]]) -> None:
    source, groups = net
    target = [prod(group) for group in groups]
    made = [any(extent in OPEN for extent in group) for group in groups]
    found = merged(axes(source), pieces_of(target, [a for a, o in enumerate(made) if o]))
    assert found is not None
    assert [prod(extents([pieces])) for pieces in found] == target
    for group, pieces in zip(groups, found, strict=True):
        apart = has_gaps(axes(group))
        assert [piece.extent for piece in pieces] == (group if apart else [prod(group)])
