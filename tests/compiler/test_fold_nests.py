"""Rewrites of nests and stages: what they make of small graphs, that they change no value, and the
contracts around them.

A case is `tests/cases/<pass>/<name>.txt`: a nest graph, a line `----`, and what the pass makes of
it. `UPDATE_CASES=1 pytest tests/compiler/test_fold_nests.py` rewrites the second half.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from machines import SYSTOLIC, machine
from nest_reader import check_case, parse_graph
from networks import Net, networks

from archgen.check.reference import run_node
from compiler.api import CompileOptions, compile_model
from compiler.errors import UnsupportedModel
from compiler.explain.dump import text_of
from compiler.lowering.lower import lower
from compiler.memory.on_chip import PlaceBuffers
from compiler.options import Stages
from compiler.passes import ContractBroken, Pass, PassFailed, run_pass
from compiler.pipeline import prepared
from compiler.plan.make_plan import Plan
from compiler.schedule.fusion.fuse_tails import FuseTails
from compiler.schedule.fusion.partition import PartitionCosts, Unfused
from compiler.schedule.residency.buffer import Places
from compiler.target.bind import Bind
from compiler.target.fuse_functions import FuseFunctions
from compiler.target.group_depthwise import GroupDepthwise
from compiler.target.join_kernel_rows import JoinKernelRows
from compiler.target.place_on_host import PlaceOnHost
from compiler.target.vector_functions import ExpandFunctions
from compiler.tensor_ir.fold import FoldBias, FoldClips, FoldConversions, StoreEncoded
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.join import JoinHost
from compiler.tensor_ir.nest import Array, HostNode, Nest, NestGraph
from compiler.tensor_ir.rewrite import check_nests
from compiler.tensor_ir.text import print_graph
from simmodel.arch.dtype import NUMPY
from simmodel.arch.record import Arch, Isa

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


def on_host(nest: Nest) -> tuple[HostNode, tuple[Nest, ...]]:
    names = tuple(access.tensor for access in nest.reads)
    return HostNode(names, (nest.tensor,), b"", nest.origin, nest.kind, ""), (nest,)


def test_what_no_engine_runs_goes_to_the_host_with_the_reason() -> None:
    graph = squares()
    placed = PlaceOnHost().apply(graph, INTEGERS, on_host, able)
    hosts = [step for step in placed.steps if isinstance(step, HostNode)]
    assert len(hosts) == len(graph.steps) == 2
    assert all(step.reason == "the vector engine has no fp32" for step in hosts)
    assert PlaceOnHost().apply(graph, machine(), on_host, able) == graph


def test_without_a_host_every_such_operator_is_listed() -> None:
    with pytest.raises(UnsupportedModel, match=r"(?s)2 operators cannot run on m:.*Neg.*Exp"):
        PlaceOnHost(allowed=False).apply(squares(), INTEGERS, lambda nest: None, able)
    with pytest.raises(UnsupportedModel, match="2 operators"):
        PlaceOnHost().apply(squares(), INTEGERS, lambda nest: None, able)


CACHE = """graph cache
buffer past 4
buffer x 1
buffer c 5
buffer present 5
tensor past: fp32[4] at past + 0 by (1)
tensor x: fp32[1] at x + 0 by (1)
tensor q: int8[4] at c + 0 by (1)
tensor row: int8[1] at c + 4 by (1)
tensor c: int8[5] at c + 0 by (1)
tensor present: fp32[5] at present + 0 by (1)
input past: fp32
input x: fp32
output present: fp32
q[i=4] = move(past[i]) as scale 0.5 zero 3
row[i=1] = neg(x[i]) as scale 0.5 zero 3
present[i=5] = move(c[i] scale 0.5 zero 3)
"""
INPUTS = {"past": np.array([1.0, -2.2, 0.3, 900.0], "f4"), "x": np.array([7.0], "f4")}


def test_a_state_is_handed_on_as_it_is_stored() -> None:
    graph = parse_graph(CACHE)
    result = run_pass(StoreEncoded(), graph)
    assert result.changed
    made = result.ir
    assert [step.tensor for step in made.steps if isinstance(step, Nest)] == ["row"]
    assert made.buffers == {"x": 1, "c": 5}
    assert made.codes == {"past": (0.5, 3), "present": (0.5, 3)}
    assert made.tensors["past"].storage == graph.tensors["q"].storage
    assert print_graph(parse_graph(print_graph(made))) == print_graph(made)
    np.testing.assert_array_equal(run(made, INPUTS)["present"], run(graph, INPUTS)["present"])
    np.testing.assert_array_equal(run(made, INPUTS)["present"], [1.0, -2.0, 0.5, 62.0, -7.0])
    assert not run_pass(StoreEncoded(), made).changed


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("neg(x[i])", "add(x[i], past[0])"),  # another reads the real values
        ("(c[i] scale 0.5", "(c[i] scale 0.25"),  # another scale on the way out
        ("move(past[i]) as", "clip(move(past[i]), 0.0, 6.0) as"),
        ("output present: fp32", "output present: fp32\noutput past: fp32"),
        (  # an output is a view of them
            "input past: fp32",
            "tensor end: fp32[2] at past + 2 by (1)\ninput past: fp32\noutput end: fp32",
        ),
    ],
)
def test_real_values_that_somebody_sees_are_made(was: str, becomes: str) -> None:
    assert was in CACHE
    assert not run_pass(StoreEncoded(), parse_graph(CACHE.replace(was, becomes))).changed


def as_one(
    nodes: tuple[HostNode, ...], outputs: tuple[str, ...], inputs: tuple[str, ...]
) -> HostNode:
    names = "+".join(node.kind for node in nodes)
    return replace(nodes[0], inputs=inputs, outputs=outputs, kind=names)


SQUARE = machine(
    types=("int8",), matrix={"kind": "cube", "rows": 1, "cols": 16, "depth": 16},
    vector={"lanes": 1},
)  # fmt: skip
TALL = machine(
    types=("fp16",),
    matrix=SYSTOLIC | {"rows": 128, "granularity": "gemm", "rate": {"fp16": 1 / 64}},
)  # fmt: skip
CONSTANTS = {
    "w": np.zeros((64, 3, 3), np.int8), "f": np.ones(64, np.float32),
    "k": np.zeros((64, 3, 7, 7), np.float16),
}  # fmt: skip
PLAIN = Isa(
    without=("vector.unary.silu", "vector.unary.sigmoid", "vector.unary.tanh", "vector.unary.neg")
)
STAGES: dict[str, Callable[[NestGraph], object]] = {
    "group-depthwise": lambda g: GroupDepthwise().apply(g, SQUARE),
    "join-kernel-rows": lambda g: JoinKernelRows().apply(g, TALL),
    "fuse-functions": lambda g: FuseFunctions().apply(g, machine()),
    "expand-functions": lambda g: ExpandFunctions().apply(
        g, machine().model_copy(update={"isa": PLAIN})
    ),
    "place-on-host": lambda g: PlaceOnHost().apply(g, INTEGERS, on_host, able),
    "join-host": lambda g: JoinHost().apply(g, as_one),
    "fuse-tails": lambda g: FuseTails().apply(g),
    "bind": lambda g: Bind().apply(FuseTails().apply(g), SQUARE),
}
STAGE_FILES = [path for name in STAGES for path in sorted((CASES / name).glob("*.txt"))]


@pytest.mark.parametrize("path", STAGE_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_stage_cases(path: Path) -> None:
    name, payloads = path.parent.name, dict.fromkeys("abyz", b"")
    stage = STAGES[name]
    check_case(
        path, lambda text: text_of(name, stage(parse_graph(text, CONSTANTS, payloads)), "net")
    )


def test_graphs_of_nests_are_checked() -> None:
    whole = squares()
    check_nests(whole)
    late = replace(whole, steps=whole.steps[::-1])
    with pytest.raises(ContractBroken, match="is read before anything writes"):
        check_nests(late)
    small = replace(whole, buffers=dict.fromkeys(whole.buffers, 1))
    with pytest.raises(ContractBroken, match="is not inside"):
        check_nests(small)


@dataclass(frozen=True)
class Forgetful(Unfused):
    """Loses the last layer."""

    def groups(self, costs: PartitionCosts) -> list[int]:
        return super().groups(costs)[:-1]


@dataclass(frozen=True)
class Stacked(PlaceBuffers):
    """Places everything at 0."""

    def ensures(
        self, places: Places, plan: Plan, arch: Arch, before: tuple[Plan, Places] | None = None
    ) -> None:
        super().ensures({name: (0, place[1]) for name, place in places.items()}, plan, arch)


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (Stages(partition=Forgetful()), r"forgetful \(ensures\): .* is lost"),
        (Stages(alloc=Stacked()), r"stacked \(ensures\): .* share bytes of local"),
    ],
)
def test_a_stage_that_breaks_its_promise_is_named(stages: Stages, said: str) -> None:
    net = Net()
    y = net.op("Conv", net.input(1, 4, 6, 6), net.weight(4, 4, 3, 3), pads=[1] * 4)
    model = net.model(net.op("MaxPool", y, kernel_shape=[2, 2]))
    with pytest.raises(PassFailed, match=said):
        compile_model(model, machine(), CompileOptions(stages=stages))
