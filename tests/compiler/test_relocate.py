"""Groups that are alike but for names and constants are planned and emitted once: the plans and
trees of the others are that one's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from weakref import ref

import numpy as np
import onnx
import pytest
from blocks import attention, conv
from machines import NAMED
from networks import Net, model
from onnx import helper

from archgen.schema import load_arch
from compiler.api import CompileOptions, CompileResult, compile_model, prepared
from compiler.codegen.group import GroupEmitter
from compiler.codegen.kernels import KERNELS, Kernel, Part
from compiler.codegen.nodes import Node
from compiler.codegen.program import ProgramCode
from compiler.context import ScheduledNetwork
from compiler.decisions.cache import Decisions
from compiler.decisions.group_costs import GroupCosts
from compiler.frontend.operators.body import Declined
from compiler.memory.on_chip import PlacedGroup
from compiler.options import Stages, stages_for
from compiler.pipeline import emit_program, replace_steps
from compiler.plan.make_plan import MakePlan, Plan
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency.activations import KeepTensors
from compiler.schedule.tiling.choose_tiles import GroupSearch
from compiler.schedule.tiling.group_price import GroupPricer
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Schedule
from simmodel.arch.record import Arch
from simmodel.program.assembly import print_program

STAGES = Stages(partition=Unfused(), keep=KeepTensors(enabled=False))


def stacked() -> onnx.ModelProto:
    net = Net(quantized=False)
    x = net.input(1, 24, 16)
    for _ in range(3):
        x = net.op("Relu", net.op("Add", attention(net, x, 2), x))
    return net.model(x)


def recurrent() -> onnx.ModelProto:
    """Steps of two directions, of which each reads and writes other parts of the same sequences."""
    random = np.random.default_rng(0)
    shapes = {"w": (2, 16, 8), "r": (2, 16, 4)}
    weights = {name: random.normal(size=s).astype(np.float32) for name, s in shapes.items()}
    node = helper.make_node(
        "LSTM", ["x", "w", "r"], ["y"], direction="bidirectional", hidden_size=4
    )
    return model([node], {"x": (12, 1, 8)}, {"y": (12, 2, 1, 4)}, weights, opset=21)


def added_twice(dst: Part, a: Part, b: Part) -> str:
    if len(dst.shape) > 1:
        raise Declined
    return f"vector.binary vector function=add dst={dst} a={a} b={b}\n" * 2


def plans(result: CompileResult) -> list[object]:
    """All that is in the plans of a result, their layers aside."""
    found = (step.plan for step in result.steps if isinstance(step, PlacedGroup))
    return [
        (
            list(plan.buffers.items()), plan.loads, plan.stores, list(plan.held.items()),
            [(own.loads, own.computes, own.result) for own in plan.layers],
            [(walked.moments, walked.rolled, walked.still) for walked in plan.walked],
        )
        for plan in found
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "network", "share"),
    [
        *((name, stacked, 1.0) for name in NAMED),
        *((name, recurrent, 0.4) for name in ("plain", "small", "joined", "clustered")),
    ],
)
def test_programs_are_those_of_groups_each_emitted(
    name: str, network: Callable[[], onnx.ModelProto], share: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    emitted: list[int] = []
    planned: list[Schedule] = []
    nodes, plan = GroupEmitter.nodes, MakePlan.apply

    def counted(self: GroupEmitter) -> list[Node]:
        emitted.append(self.around.step)
        return nodes(self)

    def noted(self: MakePlan, schedule: Schedule, arch: Arch) -> Plan:
        planned.append(schedule)
        return plan(self, schedule, arch)

    monkeypatch.setattr(GroupEmitter, "nodes", counted)
    monkeypatch.setattr(MakePlan, "apply", noted)
    twice = Kernel("twice", "vector.binary.add", added_twice, 2, ())
    monkeypatch.setitem(KERNELS, twice.name, twice)
    model, arch = network(), NAMED[name]
    options = CompileOptions(dtype="fp32", stages=STAGES)
    moved = compile_model(model, arch, options)
    alike, emitted[:] = {*emitted}, []
    few, planned[:] = len(planned), []
    site = ProgramCode._site
    monkeypatch.setattr(GroupCosts, "_plan", lambda own, s: own.stages.plan.apply(s, own.arch))
    monkeypatch.setattr(ProgramCode, "_site", lambda *given: (((object(),), ()), site(*given)[1]))
    each = compile_model(model, arch, options)
    assert len(alike) < share * len({*emitted}) and few < len(planned)
    assert plans(moved) == plans(each)
    assert len({*emitted}) == len({o.group for o in each.program.origins})
    one, other = (replace(each.program, constants=()) for each in (moved, each))
    assert print_program(one) == print_program(other)
    assert (one, moved.probes) == (other, each.probes)
    assert (moved.works, moved.kernels) == (each.works, each.kernels)


def convolved() -> onnx.ModelProto:
    """Rows with borders, strides, a branch, and columns that cores take."""
    net = Net()
    x = net.op("Relu", conv(net, net.input(1, 3, 36, 36), 16, (3, 3), stride=(2, 2)))
    a = net.op("Relu", conv(net, x, 16, (3, 3)))
    x = net.op("Add", conv(net, a, 16, (1, 1), pads=(0, 0, 0, 0)), x)
    return net.model(net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))


@pytest.mark.parametrize(
    ("name", "network"),
    [("wide", convolved), ("clustered", stacked), ("small", stacked), ("joined", stacked)],
)
def test_programs_are_those_of_cores_each_emitted(
    name: str, network: Callable[[], onnx.ModelProto], monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[int] = []
    nodes = GroupEmitter.nodes

    def counted(self: GroupEmitter) -> list[Node]:
        emitted.append(self.around.step)
        return nodes(self)

    monkeypatch.setattr(GroupEmitter, "nodes", counted)
    arch = NAMED[name]
    options = CompileOptions(dtype="fp32")
    moved, few = compile_model(network(), arch, options), len(emitted)
    site = ProgramCode._core_site
    monkeypatch.setattr(ProgramCode, "_core_site", lambda *given: (object(), site(*given)[1]))
    each = compile_model(network(), arch, options)
    assert few < len(emitted) - few
    one, other = (replace(made.program, constants=()) for made in (moved, each))
    assert print_program(one) == print_program(other)
    assert (moved.works, moved.kernels) == (each.works, each.kernels)


def widened() -> onnx.ModelProto:
    """Few pixels of many channels, that all cores load as a whole."""
    net, small = Net(quantized=False), (0, 0, 0, 0)
    x = net.op("Relu", conv(net, net.input(1, 512, 7, 7), 512, (1, 1), pads=small))
    y, z = (net.op("Relu", conv(net, x, 2048, (1, 1), pads=small)) for _ in range(2))
    return net.model(net.op("Add", y, z))


@pytest.mark.parametrize(
    ("name", "network", "stages"),
    [
        *((name, convolved, Stages()) for name in NAMED),
        ("joined", recurrent, Stages()),
        ("stcp920", widened, STAGES),  # cores share loads that wait for other steps
    ],
)
def test_a_group_that_was_emitted_alone_is_not_emitted_again(
    name: str, network: Callable[[], onnx.ModelProto], stages: Stages,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    arch, dtype = (NAMED[name], "fp32") if name in NAMED else (load_arch(name), "fp16")
    made = compile_model(network(), arch, CompileOptions(dtype=dtype, stages=stages))
    search = made.search
    assert search is not None
    search.costs.emitted.kept.clear()
    alone = replace(search, graph=replace(search.graph, steps=(), inputs=(), outputs=()))
    for step in made.steps:
        if isinstance(step, PlacedGroup):
            emit_program(ScheduledNetwork(alone, (step,)), search.context)
    monkeypatch.setattr(GroupEmitter, "nodes", None)
    for _ in range(2):  # the second time with the same variables
        again = replace_steps(made, made.steps)
        one, other = (replace(each.program, constants=()) for each in (made, again))
        assert print_program(one) == print_program(other)
        assert one == other and made.works == again.works


def test_what_was_emitted_keeps_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    of, codes = ProgramCode.of, dict[int, Any]()
    monkeypatch.setattr(ProgramCode, "of", lambda *given: codes.setdefault(len(codes), of(*given)))
    made = compile_model(stacked(), NAMED["plain"], CompileOptions(dtype="fp32", stages=STAGES))
    code = ref(codes.pop(0))
    assert made.search and made.search.costs.emitted.kept and code() is None


def test_programs_for_one_machine_share_what_layers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    model, arch, decisions = prepared(convolved(), "net"), NAMED["wide"], Decisions()
    options = CompileOptions(dtype="fp32")
    asked: list[int] = []
    price = GroupSearch._priced_loops

    def counted(self: GroupSearch, group: Group, splits: Sequence[Any]) -> Any:
        asked.extend(map(len, splits))
        return price(self, group, splits)

    monkeypatch.setattr(GroupSearch, "_priced_loops", counted)
    apart = replace(options, stages=STAGES)
    each = compile_model(model, arch, apart)
    several, asked[:] = len(asked), []
    first = compile_model(model, arch, options, decisions=decisions)
    own, asked[:] = len(asked), []
    shared = compile_model(model, arch, apart, decisions=decisions)
    assert len(asked) < several / 2 and own and first.search is not None
    assert print_program(shared.program) == print_program(each.program)
    assert shared.search is not None and shared.search.costs.stages == STAGES


def test_a_narrower_search_asks_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, arch = prepared(convolved(), "net"), NAMED["wide"]
    wide, narrow = (CompileOptions(dtype="fp32", stages=stages_for(n)) for n in (1, 0))
    asked: list[object] = []
    price, loops = GroupPricer.price, GroupSearch._priced_loops

    def priced(self: GroupPricer, *cut: Any, **how: Any) -> Any:
        asked.append(cut)
        return price(self, *cut, **how)

    def priced_loops(self: GroupSearch, group: Group, splits: Sequence[Any]) -> Any:
        asked.extend(splits)
        return loops(self, group, splits)

    monkeypatch.setattr(GroupPricer, "price", priced)
    monkeypatch.setattr(GroupSearch, "_priced_loops", priced_loops)
    each = compile_model(model, arch, narrow)
    several, asked[:] = len(asked), []
    first = compile_model(model, arch, wide)
    own, asked[:] = len(asked), []
    again = compile_model(model, arch, narrow, like=first)
    assert len(asked) < several / 4 and own
    assert print_program(again.program) == print_program(each.program)
