"""Groups that are alike but for their names have one outline, and the schedules of each other."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, pairwise

import pytest
from blocks import conv
from machines import NAMED, machine
from networks import Net
from replay import NETWORKS

from compiler.api import CompileOptions, compile_model, prepared
from compiler.codegen import relocate
from compiler.codegen.nodes import Node
from compiler.decisions.group_costs import GroupCosts
from compiler.options import Stages
from compiler.pipeline import replace_steps
from compiler.schedule.fusion.partition import Outlines, Unfused
from compiler.schedule.residency.activations import KeepTensors
from compiler.schedule.tiling.choose_tiles import GroupSearch
from compiler.schedule_ir.group import Group, ResidentTensor, Shared
from compiler.schedule_ir.schedule import Schedule
from simmodel.arch.base import Latest
from simmodel.arch.record import Arch
from simmodel.program.assembly import print_program


def groups_of(net: Net, dtype: str = "fp32", arch: Arch | None = None) -> list[Group]:
    """Each layer of a network, and each pair that follows each other, as groups."""
    found = compile_model(
        net.model(f"t{net.count}"), arch or machine(), CompileOptions(dtype=dtype)
    ).search
    assert found is not None
    layers = [part for part in found.parts if not hasattr(part, "payload")]
    alone = [Group((layer,), (layer.result.name,)) for layer in layers]
    pairs = [Group((a, b), (b.result.name,)) for a, b in pairwise(layers)]
    return alone + pairs


def chain(*kernels: int, quantized: bool = False) -> Net:
    net = Net(quantized)
    x = net.input(1, 4, 16, 8)
    for kernel in kernels:
        x = net.op("Relu", conv(net, x, 4, (kernel, kernel)))
    return net


def test_names_and_values_make_no_difference_shapes_and_wiring_do() -> None:
    outlines = Outlines()
    groups = groups_of(chain(3, 3, 3, 3, 1, 3))
    first, second, small, pair = groups[1], groups[2], groups[4], groups[7]
    assert outlines.of(first) == outlines.of(second) != outlines.of(small)
    assert outlines.of(pair) == outlines.of(groups[8]) != outlines.of(groups[9])
    assert outlines.of(pair) != outlines.of(replace(pair, results=tuple(pair.producer_positions)))
    assert outlines.of(replace(pair, reserved={"local": 64})) != outlines.of(pair)


def test_what_is_asked_of_a_group_again_and_again_is_found_once() -> None:
    group, other, *_ = groups_of(chain(3, 3))
    asked: list[Group] = []

    def place(group: Group) -> int:
        asked.append(group)
        return len(asked)

    latest = Latest(place)
    assert [latest(group), latest(group), latest(other), latest(group)] == [1, 1, 2, 1]
    # Groups are known by identity: to compare them takes as long as to find out.
    assert latest(replace(group)) == 3
    outlines = Outlines()
    assert outlines.of(replace(group)) == outlines.of(group)


def test_scales_make_no_difference_but_that_they_are_there() -> None:
    outlines = Outlines()
    group = groups_of(chain(3, 3, quantized=True), "int8")[1]
    (layer,) = group.layers
    *nests, last = layer.nests
    assert last.scale is not None

    def encoded(scale: float | None, zero: int) -> Group:
        nest = replace(last, scale=scale, zero=zero)
        return replace(group, layers=(replace(layer, nests=(*nests, nest)),))

    assert outlines.of(encoded(0.3, 5)) == outlines.of(encoded(0.7, -5))
    assert outlines.of(encoded(0.3, 5)) == outlines.of(encoded(0.3, 0))
    assert outlines.of(encoded(None, 0)) != outlines.of(encoded(0.7, 0))
    exact = Outlines(values=True)  # as instructions say them
    assert exact.of(encoded(0.3, 5)) == exact.of(encoded(0.3, 5)) != exact.of(encoded(0.7, 5))
    assert exact.of(encoded(0.3, 5)) != exact.of(encoded(0.3, 4))


def test_where_tensors_lie_between_groups_makes_a_difference() -> None:
    outlines = Outlines()
    group = groups_of(chain(3, 3))[1]
    (name,) = (n for n in group.inputs if group.tensors[n].data is None)
    shape = group.tensors[name].shape
    kept = ResidentTensor(shape, (0,) * 4, (0,) * 4, (0, 1, 2, 3), 0.0, 128, name, (0,) * 4, shape)
    ways = [
        group,
        replace(group, residency={name: kept}),
        replace(group, residency={name: replace(kept, address=256)}),
        replace(group, residency={group.results[0]: kept}),
        replace(group, residency={name: Shared(0, 2048)}),
        replace(group, residency={group.results[0]: Shared(0, 2048)}),
    ]
    assert len({outlines.of(way) for way in ways}) == len(ways)


def test_what_is_alike_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    arch = machine()
    groups = groups_of(chain(3, 3, 3, 3, 3, 3), arch=arch)
    pairs = [group for group in groups if len(group.layers) == 2]
    searched: list[Group] = []
    search = GroupSearch.schedules

    def counted(self: GroupSearch, group: Group) -> list[Schedule]:
        searched.append(group)
        return search(self, group)

    monkeypatch.setattr(GroupSearch, "schedules", counted)
    costs = GroupCosts(arch, Stages())
    found = [costs.schedules(group) for group in pairs]
    assert (len(pairs), len(searched)) == (5, 2)  # the first reads rows, the others pixels
    for group, schedules in zip(pairs, found, strict=True):
        assert all(schedule.group is group for schedule in schedules)
        assert all(t.layer is la for t, la in zip(schedules[0].layers, group.layers, strict=True))
        alone = GroupCosts(arch, Stages()).schedules(group)
        assert [s.estimate for s in schedules] == [s.estimate for s in alone]
        assert [s.loops for s in schedules] == [s.loops for s in alone]


def test_trees_that_were_moved_to_a_place_serve_other_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved: list[Node] = []
    node = relocate._Relocation.node

    def counted(self: relocate._Relocation, one: Node) -> Node:
        moved.append(one)
        return node(self, one)

    monkeypatch.setattr(relocate._Relocation, "node", counted)
    stages = Stages(partition=Unfused(), keep=KeepTensors(enabled=False))
    options = CompileOptions(dtype="fp32", stages=stages)
    net = chain(*[3] * 12)
    made = compile_model(net.model(f"t{net.count}"), machine(), options)
    assert (first := len(moved))
    assert replace_steps(made, made.steps).program.cores == made.program.cores
    assert len(moved) == first


@pytest.mark.parametrize(
    ("network", "name"), list(zip(NETWORKS, cycle(["clustered", "plain"]), strict=False))
)
def test_programs_are_those_of_groups_each_priced_alone(
    network: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net(quantized=True)
    model = prepared(net.model(NETWORKS[network](net)), network)
    options = CompileOptions(dtype="int8")
    shared = compile_model(model, NAMED[name], options).program
    monkeypatch.setattr(
        "compiler.schedule.fusion.partition._outline_of", lambda tensor: (tensor.name,)
    )
    alone = compile_model(model, NAMED[name], options).program
    assert print_program(shared) == print_program(alone)
