"""Groups that are alike but for values are emitted once: the trees of the others are that one's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from blocks import attention
from machines import NAMED
from networks import Net

from compiler.api import CompileOptions, compile_model
from compiler.codegen.group import GroupEmitter
from compiler.codegen.kernels import KERNELS, Kernel, Part
from compiler.codegen.nodes import Node
from compiler.codegen.program import ProgramCode
from compiler.frontend.operators.body import Declined
from compiler.options import Stages
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency.activations import KeepTensors
from simmodel.program.assembly import print_program

STAGES = Stages(partition=Unfused(), keep=KeepTensors(enabled=False))


def stacked(quantized: bool, layers: int = 3) -> Net:
    net = Net(quantized)
    x = net.input(1, 24, 16)
    for _ in range(layers):
        x = net.op("Relu", net.op("Add", attention(net, x, 2), x))
    net.result = x  # type: ignore[attr-defined]
    return net


def added_twice(dst: Part, a: Part, b: Part) -> str:
    if len(dst.shape) > 1:
        raise Declined
    return f"vector.binary vector function=add dst={dst} a={a} b={b}\n" * 2


@pytest.mark.parametrize("name", NAMED)
def test_programs_are_those_of_groups_each_emitted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[int] = []
    nodes = GroupEmitter.nodes

    def counted(self: GroupEmitter) -> list[Node]:
        emitted.append(self.around.step)
        return nodes(self)

    monkeypatch.setattr(GroupEmitter, "nodes", counted)
    twice = Kernel("twice", "vector.binary.add", added_twice, 2, ())
    monkeypatch.setitem(KERNELS, twice.name, twice)
    net = stacked(quantized=False)
    model = net.model(net.result)  # type: ignore[attr-defined]
    arch = NAMED[name]
    options = CompileOptions(dtype="fp32", stages=STAGES)
    moved = compile_model(model, arch, options)
    alike, emitted[:] = {*emitted}, []
    site = ProgramCode._site
    monkeypatch.setattr(ProgramCode, "_site", lambda *given: (object(), site(*given)[1]))
    each = compile_model(model, arch, options)
    assert len(alike) < len({*emitted}) == len({o.group for o in each.program.origins})
    one, other = (replace(each.program, constants=()) for each in (moved, each))
    assert print_program(one) == print_program(other)
    assert (one, moved.probes) == (other, each.probes)
    assert (moved.works, moved.kernels) == (each.works, each.kernels)
