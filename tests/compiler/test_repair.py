"""A machine with few tokens gets a program that does less at once, and says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machines import machine
from networks import check
from test_fit import chain

from compiler.api import CompileOptions, compile_model, prepared
from compiler.codegen.issue_order.order import OrderInstructions
from compiler.decisions.fallback import strategies
from compiler.decisions.text.extract import extract_tree
from compiler.errors import DoesNotFit
from compiler.options import Stages
from simmodel.program.assembly import print_program

SMALL = {"size": 1024, "banks": 1}
"""Local memory in which a layer of `chain` takes many tiles."""

TIGHT = {"size": 8192, "banks": 4}
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


def test_cores_do_what_fewer_can_where_tokens_are_too_few() -> None:
    """Two layers on four cores: what they would tell each other of shared loads goes first, then
    half of the cores."""
    net = chain(2)
    model = net.model(f"t{net.count}")
    for tokens, note in ((12, "no loads are shared between cores"), (6, "")):
        arch = machine(cores=4, among="load", tokens=tokens, local=SMALL)
        made = check(model, arch, "fp32").compiled
        assert len(made.program.tokens[0]) <= tokens
        assert note in " ".join(made.notes), made.notes


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
            cores=cores, among="load", tokens=tokens, local=SMALL if sized else TIGHT,
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
    made = compile_model(model, machine(tokens=7, local=TIGHT), observe=seen.__setitem__)
    assert made.notes  # or nothing was made twice
    steps = seen["layout"]
    assert isinstance(steps, tuple)
    assert [step.plan for step in steps] == [decision.plan for decision in made.decisions]
    assert seen["order"] is made.program
