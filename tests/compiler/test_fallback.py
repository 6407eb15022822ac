"""What does not fit is tried in smaller pieces; what fits in none is refused with its sum. A
machine with few tokens gets a program that does less at once, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from blocks import conv
from doubles import anything
from machines import machine
from networks import Net, check, refused

from compiler.api import CompileOptions, compile_model, prepared
from compiler.codegen.issue_order.order import OrderInstructions
from compiler.cost import multicast
from compiler.decisions.fallback import strategies
from compiler.decisions.group_costs import Fit, GroupCosts
from compiler.decisions.text.extract import extract_tree
from compiler.errors import DoesNotFit
from compiler.options import Stages
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency.activations import KeepTensors
from compiler.schedule.residency.table import Part, Prices
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Schedule
from compiler.tensor_ir.nest import NestGraph
from simmodel.program.assembly import print_program


def chain(layers: int) -> Net:
    net = Net()
    x = net.input(1, 4, 16, 8)
    for _ in range(layers):
        x = conv(net, x, 4, (3, 3))
    return net


def test_few_tokens_make_short_groups() -> None:
    net = chain(4)
    model = net.model(f"t{net.count}")
    options = anything(1, rolling=True)
    plenty = check(model, machine(tokens=64), "fp32", options).compiled
    few = check(model, machine(tokens=6), "fp32", options).compiled
    assert max(len(d.group.layers) for d in plenty.decisions) > 1
    assert len(few.program.tokens[0]) <= 6
    assert len(few.decisions) >= len(plenty.decisions)


def test_the_search_is_done_again_without_groups_that_find_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Halves of a group of six that find a place are quicker in twos and fours."""
    place, tried = GroupCosts.place, list[tuple[int, ...]]()

    def refuse(self: GroupCosts, schedule: Schedule, before: Fit | None) -> Fit:
        if len(schedule.group.layers) in (3, 6):
            raise DoesNotFit(1, 0, "B", (), (), "for the test")
        return place(self, schedule, before)

    def watch(stage: str, made: object) -> None:
        if stage == "fuse" and isinstance(made, tuple):
            tried.append(tuple(len(part.layers) for part in made))

    monkeypatch.setattr(GroupCosts, "place", refuse)
    net = chain(6)
    made = compile_model(net.model(f"t{net.count}"), machine(), CompileOptions("fp32"), watch)
    assert tried[0] == (6,) != tried[-1]
    assert tuple(len(decision.group.layers) for decision in made.decisions) == tried[-1]
    assert made.search is not None and not made.search.costs.barred  # of this search alone


def test_an_operator_that_fits_with_one_slot_alone_takes_one() -> None:
    """Nine products of two fp32 numbers: two tiles of each operand are more than there is."""
    net = Net()
    model = net.model(net.op("Conv", net.input(1, 4, 6, 6), net.weight(4, 4, 3, 3)))
    little = machine(local={"size": 128, "banks": 1})
    made = check(model, little, "fp32").compiled
    assert [decision.plan.slots for decision in made.decisions] == [1]
    tree = extract_tree("net", made.steps)  # which says so, and the compiler is not asked again
    again = compile_model(model, little, CompileOptions("fp32", tree=tree))
    assert print_program(again.program) == print_program(made.program)
    with pytest.raises(DoesNotFit) as why:
        check(model, machine(local={"size": 64, "banks": 1}), "fp32")
    assert "local memory needs 80 B, has 64 B: x0 36 B, t1 36 B" in str(why.value)


def test_what_fits_nowhere_is_refused_with_its_sum() -> None:
    net = chain(2)
    model = net.model(f"t{net.count}")
    local = {"size": 64, "banks": 1, "bank_width": 16}
    with pytest.raises(DoesNotFit) as why:
        check(model, machine(local=local), "fp32")
    assert "local" in refused(why.value)


@dataclass(frozen=True)
class Crowded(KeepTensors):
    """What is kept leaves the groups hardly any memory."""

    left: int = 16

    def apply(self, parts: Sequence[Part], graph: NestGraph, costs: Prices) -> tuple[Part, ...]:
        """`parts` with all but `left` bytes reserved where anything is kept."""
        reserved = {"local": costs.arch.memories.local.size - self.left}
        return tuple(
            replace(part, reserved=reserved) if isinstance(part, Group) and part.residents else part
            for part in super().apply(parts, graph, costs)
        )


def test_what_is_kept_is_given_up_where_a_layer_fits_no_tile_beside_it() -> None:
    net = chain(3)
    model = net.model(f"t{net.count}")
    options = CompileOptions(stages=Stages(partition=Unfused(), keep=Crowded()))
    compiled = check(model, machine(), "fp32", options).compiled
    assert not any(made.group.residents for made in compiled.decisions)
    assert not compiled.notes  # the groups without it were weighed beside those with it


SMALL = {"size": 1024, "banks": 1}
"""Local memory in which a layer of `chain` takes many tiles."""

FEW, TIGHT = ({"size": size, "banks": 4} for size in (4096, 8192))
"""Local memory in which groups of `chain` take tiles."""


def test_ways_are_ever_more_sparing() -> None:
    usual, apart, single, *fewer, turns = strategies(Stages(), 5)
    assert usual.stages == Stages()
    assert not usual.note
    assert not apart.stages.keep.enabled
    assert apart.stages.plan.slots > single.stages.plan.slots == 1
    assert [way.stages.tile.cores for way in fewer] == [2, 1]
    assert turns.stages == replace(single.stages, order=OrderInstructions(turns=True))
    assert len(list(strategies(single.stages, 1))) == 3


def test_cores_do_what_fewer_can_where_tokens_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers on four cores: as many neighbours share loads as there are tokens for, then one
    engine of a core works at a time; where more share them than that, sharing goes first."""
    net = chain(2)
    model = net.model(f"t{net.count}")

    def given(tokens: int) -> tuple[int, str]:
        arch = machine(cores=4, among="load", tokens=tokens, local=SMALL)
        made = check(model, arch, "fp32").compiled
        return len(made.program.tokens[0]), " ".join(made.notes)

    assert given(8) == (8, "")
    assert given(6) == (6, "")
    assert "one of a core works at a time" in given(5)[1]
    monkeypatch.setattr(multicast, "_token_reach", lambda arch, cores: 0)
    assert "no loads are shared between cores" in given(8)[1]


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("sized", [True, False])
def test_engines_take_turns_where_tokens_are_too_few_for_two_at_once(
    cores: int, sized: bool
) -> None:
    """One token for each of four engines, whatever the loops; with one less there is no program."""
    net = chain(1 + sized)
    model = net.model(net.op("Softmax", f"t{net.count}", axis=-1))
    four, three = (
        machine(
            cores=cores, among="load", tokens=tokens, local=SMALL if sized else FEW,
            vector={"units": 2},
        )
        for tokens in (4, 3)
    )  # fmt: skip
    made = check(model, four, "fp32").compiled
    assert len(made.program.tokens[0]) == 4
    assert "one of a core works at a time" in made.notes[0]
    options = CompileOptions("fp32", tree=extract_tree("net", made.steps, addresses=True))
    again = compile_model(prepared(model, "net"), four, options)
    assert print_program(again.program) == print_program(made.program)
    with pytest.raises(DoesNotFit) as why:
        compile_model(model, three)
    assert why.value.terms == (("engines that take turns", 4),)


def test_what_was_made_last_is_what_counts() -> None:
    net = chain(4)
    seen: dict[str, object] = {}
    model = net.model(f"t{net.count}")
    made = compile_model(model, machine(tokens=5, local=TIGHT), observe=seen.__setitem__)
    assert made.notes  # or nothing was made twice
    steps = seen["layout"]
    assert isinstance(steps, tuple)
    assert [step.plan for step in steps] == [decision.plan for decision in made.decisions]
    assert seen["order"] is made.program
