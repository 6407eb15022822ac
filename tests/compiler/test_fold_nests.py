"""Rewrites of nests: what they make of small graphs, and that they change no value.

A case is `tests/cases/<pass>/<name>.txt`: a nest graph, a line `----`, and what the pass makes of
it. `UPDATE_CASES=1 pytest tests/compiler/test_fold_nests.py` rewrites the second half.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from machines import machine
from nest_reader import check_case, parse_graph
from networks import Net, networks

from archgen.check.reference import run_node
from compiler.errors import UnsupportedModel
from compiler.lowering.lower import lower
from compiler.passes import Pass, run_pass
from compiler.pipeline import prepared
from compiler.target.place_on_host import PlaceOnHost
from compiler.tensor_ir.fold import FoldBias, FoldClips, FoldConversions
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import Array, HostNode, Nest, NestGraph
from compiler.tensor_ir.text import print_graph
from simmodel.arch.dtype import NUMPY

PASSES: dict[str, Pass[NestGraph]] = {
    step.name: step for step in (FoldBias(), FoldClips(), FoldConversions())
}
CASES = Path(__file__).parents[1] / "cases"
FILES = [path for name in PASSES for path in sorted((CASES / name).glob("*.txt"))]
CONSTANT = re.compile(r"^constant (\w+): (\w+)\[([\d, ]*)\]", re.MULTILINE)


def read(text: str) -> NestGraph:
    """The graph of `text`, its constants drawn from a seed."""
    rng = np.random.default_rng(2)
    data = {
        name: rng.standard_normal([int(n) for n in shape.split(",")]).astype(NUMPY[dtype])
        for name, dtype, shape in CONSTANT.findall(text)
    }
    return parse_graph(text, data)


def inputs_of(graph: NestGraph) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    tensors = (graph.tensors[name] for name in graph.inputs)
    return {t.name: (3 * rng.standard_normal(t.shape)).astype(NUMPY[t.dtype]) for t in tensors}


def rewritten(step: Pass[NestGraph], graph: NestGraph, steps: float = 0.0) -> NestGraph:
    """`graph` after the pass, which has to compute the same within `steps` of an output."""
    result = run_pass(step, graph)
    assert result.changed == (result.ir != graph)
    inputs = inputs_of(graph)
    before, after = run(graph, inputs, run_node), run(result.ir, inputs, run_node)
    assert list(before) == list(after)
    for name, values in before.items():
        np.testing.assert_allclose(after[name], values, 1e-5, 1e-5 + steps, err_msg=name)
    return result.ir


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_cases(path: Path) -> None:
    step = PASSES[path.parent.name]
    check_case(path, lambda before: print_graph(rewritten(step, read(before))))


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("name", PASSES)
def test_random_graphs_keep_their_meaning(name: str, quantized: bool) -> None:
    @settings(max_examples=15, derandomize=True)
    @given(networks(quantized))
    def holds(model: onnx.ModelProto) -> None:
        rewritten(PASSES[name], lower(prepared(model, "net"), "fp32"), 0.07 if quantized else 0.0)

    holds()


def squares() -> NestGraph:
    net = Net()
    return lower(prepared(net.model(net.op("Exp", net.op("Neg", net.input(2, 3)))), "net"), "fp32")


@pytest.mark.parametrize(("op", "number", "scale"), [("Div", 8.0, 0.125), ("Mul", 0.3, 0.3)])
def test_a_constant_factor_is_a_scale_of_what_follows(op: str, number: float, scale: float) -> None:
    net = Net()
    scores = net.op(op, net.op("MatMul", net.input(4, 8), net.input(8, 6)), net.const(number, "f4"))
    model = net.model(net.op("Softmax", scores, axis=-1))
    graph = rewritten(FoldConversions(), lower(prepared(model, "net"), "fp32"))
    nests = [step for step in graph.steps if isinstance(step, Nest)]
    assert op not in {nest.kind for nest in nests[:-1]}  # the last one multiplies by a reciprocal
    scales = {nest.kind: nest.operands[0].scale for nest in nests}
    assert scales["ReduceMax"] == scales["Sub"] == pytest.approx(scale)


INTEGERS = machine(types=("int8",), vector={"types": ("int8", "int32")})


def able(payload: bytes) -> None:
    del payload


def test_what_no_engine_runs_goes_to_the_host_with_the_reason() -> None:
    graph = squares()

    def fallback(nest: Nest) -> tuple[HostNode, tuple[Nest, ...]]:
        names = tuple(access.tensor for access in nest.reads)
        return HostNode(names, (nest.tensor,), b"", nest.origin, nest.kind, ""), (nest,)

    placed = PlaceOnHost().apply(graph, INTEGERS, fallback, able)
    hosts = [step for step in placed.steps if isinstance(step, HostNode)]
    assert len(hosts) == len(graph.steps) == 2
    assert all(step.reason == "the vector engine has no fp32" for step in hosts)
    assert PlaceOnHost().apply(graph, machine(), fallback, able) == graph


def test_without_a_host_every_such_operator_is_listed() -> None:
    with pytest.raises(UnsupportedModel, match=r"(?s)2 operators cannot run on m:.*Neg.*Exp"):
        PlaceOnHost(allowed=False).apply(squares(), INTEGERS, lambda nest: None, able)
    with pytest.raises(UnsupportedModel, match="2 operators"):
        PlaceOnHost().apply(squares(), INTEGERS, lambda nest: None, able)
