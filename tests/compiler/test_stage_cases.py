"""Text cases of stages with a signature of their own, and of the contracts around them.

A case is `tests/cases/<pass>/<name>.txt`: a nest graph, a line `----`, and what the stage makes of
it. `UPDATE_CASES=1 pytest tests/compiler/test_stage_cases.py` rewrites the second half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from machines import machine
from nest_reader import check_case, parse_graph
from networks import Net

from compiler.api import CompileOptions, compile_model, prepared
from compiler.explain.dump import text_of
from compiler.lowering.lower import lower
from compiler.memory.on_chip import PlaceBuffers
from compiler.options import Stages
from compiler.passes import ContractBroken, PassFailed
from compiler.plan.make_plan import Plan
from compiler.schedule.fusion.fuse_tails import FuseTails
from compiler.schedule.fusion.partition import PartitionCosts, Unfused
from compiler.schedule.residency.buffer import Places
from compiler.target.bind import Bind
from compiler.target.fuse_functions import FuseFunctions
from compiler.target.group_depthwise import GroupDepthwise
from compiler.target.place_on_host import PlaceOnHost
from compiler.target.vector_functions import ExpandFunctions
from compiler.tensor_ir.join import JoinHost
from compiler.tensor_ir.nest import HostNode, Nest, NestGraph
from compiler.tensor_ir.rewrite import check_nests
from simmodel.arch.record import Arch, Isa

CASES = Path(__file__).parents[1] / "cases"
INTEGERS = machine(types=("int8",), vector={"types": ("int8", "int32")})


def on_host(nest: Nest) -> tuple[HostNode, tuple[Nest, ...]]:
    names = tuple(access.tensor for access in nest.reads)
    return HostNode(names, (nest.tensor,), b"", nest.origin, nest.kind, ""), (nest,)


def as_one(
    nodes: tuple[HostNode, ...], outputs: tuple[str, ...], inputs: tuple[str, ...]
) -> HostNode:
    names = "+".join(node.kind for node in nodes)
    return replace(nodes[0], inputs=inputs, outputs=outputs, kind=names)


SQUARE = machine(
    types=("int8",), matrix={"kind": "cube", "rows": 1, "cols": 16, "depth": 16},
    vector={"lanes": 1},
)  # fmt: skip
CONSTANTS = {"w": np.zeros((64, 3, 3), np.int8), "f": np.ones(64, np.float32)}
PLAIN = Isa(
    without=("vector.unary.silu", "vector.unary.sigmoid", "vector.unary.tanh", "vector.unary.neg")
)
STAGES: dict[str, Callable[[NestGraph], object]] = {
    "group-depthwise": lambda g: GroupDepthwise().apply(g, SQUARE),
    "fuse-functions": lambda g: FuseFunctions().apply(g, machine()),
    "expand-functions": lambda g: ExpandFunctions().apply(
        g, machine().model_copy(update={"isa": PLAIN})
    ),
    "place-on-host": lambda g: PlaceOnHost().apply(g, INTEGERS, on_host, lambda payload: None),
    "join-host": lambda g: JoinHost().apply(g, as_one),
    "fuse-tails": lambda g: FuseTails().apply(g),
    "bind": lambda g: Bind().apply(FuseTails().apply(g), SQUARE),
}
FILES = [path for name in STAGES for path in sorted((CASES / name).glob("*.txt"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_cases(path: Path) -> None:
    name, payloads = path.parent.name, dict.fromkeys("abyz", b"")
    stage = STAGES[name]
    check_case(
        path, lambda text: text_of(name, stage(parse_graph(text, CONSTANTS, payloads)), "net")
    )


def graph() -> NestGraph:
    net = Net()
    y = net.op("Conv", net.input(1, 4, 6, 6), net.weight(4, 4, 3, 3), pads=[1] * 4)
    return lower(prepared(net.model(net.op("Exp", net.op("Relu", y))), "net"), "fp32")


def test_graphs_of_nests_are_checked() -> None:
    whole = graph()
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
