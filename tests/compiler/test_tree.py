"""Schedules as text: what is written is read, what is wrong is told, what is followed is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from blocks import conv
from hypothesis import given
from hypothesis import strategies as st
from machines import machine
from networks import Net, feeds_of, reference

from compiler.api import CompileOptions, CompileResult, compile_model, prepared
from compiler.decisions.text.extract import extract_tree
from compiler.decisions.text.text import parse_tree, print_tree
from compiler.decisions.text.tree import (
    BufferAddress,
    Call,
    For,
    Home,
    ScheduleStep,
    Span,
    StepLayer,
    Tree,
)
from compiler.memory.on_chip import PlacedGroup, check_layout
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.machine.run import simulate
from simmodel.verify import verify

TEXT = """\
tree net
home "a#b" local at 4096 passed
  core h = 0:5
  core h = 3:8
home c shared
step
  core h = 0:4
  core h = 4:8
  slots 3
  for n 1
  for h 2 rolling
  layer conv, relu: for o 32; for c 64; resident
  layer "x/y"
  buffer conv at 0 every 512
host p, q
"""
TREE = Tree(
    "net",
    (
        ScheduleStep(
            (
                StepLayer(("conv", "relu"), (For("o", 32), For("c", 64)), resident=True),
                StepLayer(("x/y",)),
            ),
            ((Span("h", 0, 4),), (Span("h", 4, 8),)),
            (For("n", 1), For("h", 2, rolling=True)),
            3,
            (BufferAddress("conv", 0, 512),),
        ),
        Call(("p", "q")),
    ),
    (
        Home("a#b", "local", 4096, ((Span("h", 0, 5),), (Span("h", 3, 8),)), True),
        Home("c", "shared"),
    ),
)


def test_every_line_has_its_place() -> None:
    assert print_tree(TREE) == TEXT
    assert parse_tree(TEXT) == TREE


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1)
COUNTS = st.integers(1, 9999)
LOOPS = st.lists(st.builds(For, NAMES, COUNTS), max_size=3).map(tuple)
SPANS = st.lists(st.builds(Span, NAMES, st.integers(0, 99), COUNTS), max_size=2).map(tuple)
STEPS = st.builds(
    ScheduleStep,
    st.lists(
        st.builds(StepLayer, st.lists(NAMES, min_size=1).map(tuple), LOOPS, st.booleans()),
        min_size=1,
    ).map(tuple),
    st.lists(SPANS, max_size=2).map(tuple),
    st.lists(st.builds(For, NAMES, COUNTS, st.booleans()), max_size=2).map(tuple),
    st.none() | COUNTS,
    st.lists(
        st.builds(BufferAddress, NAMES, st.integers(0, 9999), COUNTS),
        max_size=2,
        unique_by=lambda address: address.buffer,
    ).map(tuple),
)
CALLS = st.builds(Call, st.lists(NAMES, min_size=1).map(tuple))
HOMES = st.builds(
    Home,
    NAMES,
    st.just("local"),
    st.none() | COUNTS,
    st.lists(SPANS, max_size=2).map(tuple),
    st.booleans(),
) | st.builds(Home, NAMES, st.just("shared"), st.none() | COUNTS)
TREES = st.builds(
    Tree,
    NAMES,
    st.lists(STEPS | CALLS, max_size=3).map(tuple),
    st.lists(HOMES, unique_by=lambda home: home.tensor).map(tuple),
)


@given(TREES)
def test_trees_come_back_from_their_text(tree: Tree) -> None:
    assert parse_tree(print_tree(tree)) == tree


def network() -> onnx.ModelProto:
    """Three convolutions in a row on 16 x 16 pixels: 8, 16 and 8 channels."""
    net = Net()
    x = net.input(1, 8, 16, 16)
    for channels in (8, 16, 8):
        x = net.op("Relu", conv(net, x, channels, (3, 3)))
    return net.model(x)


ROOMY = machine(name="roomy", local={"size": 1 << 18, "banks": 4})
THREE = """\
tree net
step
  core
  for h 4 rolling
  layer t4: resident
  layer t8: resident
  layer t12: for o 4
"""
"""Three layers in one step, with no more said than is needed."""


def compiled(text: str | None, arch: Arch = ROOMY) -> CompileResult:
    """The program of `network` on `arch`, by a tree or by the search."""
    tree = None if text is None else parse_tree(text)
    options = CompileOptions("fp32", tree=tree)
    return compile_model(prepared(network(), "net"), arch, options)


def test_names_are_those_of_the_network() -> None:
    own = extract_tree("net", compiled(None).steps)
    assert [nest for step in own.steps for work in step.layers for nest in work.nests] == [
        "t4", "t8", "t12",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("loops", "sizes"),
    [("for o 4", [(1, 4)]), ("for w 3", [(3, 3)]), ("for o 4; for w 5", [(1, 4), (3, 5)])],
)
def test_a_tree_by_hand_is_followed_and_computes_the_same(
    loops: str, sizes: list[tuple[int, int]]
) -> None:
    """Also in tiles of parts of several rows."""
    made = compiled(THREE.replace("for o 4", loops))
    verify(made.program, ROOMY)
    (step,) = made.steps
    assert isinstance(step, PlacedGroup)
    schedule = step.plan.schedule
    assert [(loop.axis, loop.size, loop.rolling) for loop in schedule.loops] == [(2, 4, True)]
    assert [tiled.resident for tiled in schedule.layers] == [True, True, False]
    assert [(loop.dim, loop.size) for loop in schedule.layers[2].loops] == sizes
    model = network()
    feeds = feeds_of(model)
    (want,) = reference(model, feeds).values()
    (got,) = execute(made.program, feeds, ROOMY).values()
    np.testing.assert_allclose(got, want, 0, 1e-4 * np.abs(want).max())


def test_what_a_tree_leaves_out_is_chosen() -> None:
    text = "tree net\nstep\n  layer t4\n  layer t8\nstep\n  layer t12\n"
    made = compiled(text)
    verify(made.program, ROOMY)
    first, second = made.steps
    assert isinstance(first, PlacedGroup)
    assert isinstance(second, PlacedGroup)
    assert len(first.plan.layers) == 2
    assert len(second.plan.layers) == 1
    assert first.plan.schedule.estimate.total > 0


def test_one_slot_is_less_memory_and_more_time() -> None:
    two, one = compiled(THREE), compiled(THREE.replace("  core\n", "  core\n  slots 1\n"))
    spans = [sum(b.size for b in made.program.buffers) for made in (two, one)]
    times = [simulate(made.program, ROOMY).cycles for made in (two, one)]
    assert spans[1] < spans[0]
    assert times[1] > times[0]


def test_schedules_by_hand_are_estimated_like_those_of_the_search() -> None:
    made = compiled("tree net\nstep\n  layer t4\n  layer t8\n  layer t12\n")
    assert made.search is not None
    costs = made.search.costs
    (step,) = made.steps
    assert isinstance(step, PlacedGroup)
    for schedule in costs.schedules(step.plan.schedule.group):
        again = costs.search.estimate(schedule)
        assert again.total == pytest.approx(schedule.estimate.total, rel=0.1)
    by_hand = compiled(THREE)
    (step,) = by_hand.steps
    assert isinstance(step, PlacedGroup)
    expected = step.plan.schedule.estimate.total
    assert expected == pytest.approx(simulate(by_hand.program, ROOMY).cycles, rel=0.2)


def test_what_stays_between_steps_takes_no_dram() -> None:
    apart = "tree net\nstep\n  layer t4\n  layer t8\nstep\n  layer t12\n"
    near = apart.replace("net\n", "net\nhome t8 local\n")
    moved = [
        simulate(compiled(text).program, ROOMY).traffic["dram.write"] for text in (apart, near)
    ]
    assert moved[1] == 8 * 16 * 16 * 4  # the output alone
    assert moved[0] >= moved[1] + 16 * 16 * 16 * 4


def test_addresses_are_taken_as_they_are_given() -> None:
    made = compiled(THREE)
    tree = extract_tree("net", made.steps, addresses=True)
    (step,) = tree.steps
    assert isinstance(step, ScheduleStep)
    moved = replace(step, buffers=tuple(replace(b, start=b.start + 4096) for b in step.buffers))
    again = compiled(print_tree(replace(tree, steps=(moved,))))
    first, second = (
        {b.name: b.address for b in found.program.buffers if b.memory == "local"}
        for found in (made, again)
    )
    assert second == {name: address + 4096 for name, address in first.items()}


def test_places_are_checked_by_what_knows_no_placer() -> None:
    (step,) = compiled(THREE).steps
    assert isinstance(step, PlacedGroup)
    plan, places = step.plan, step.places
    assert not list(check_layout(plan, places, ROOMY))
    first, second = (name for name, b in list(plan.buffers.items())[:2] if b.role == "local")
    clash = {**places, first: places[second]}
    assert any(
        "share bytes of local memory" in said for _, said in check_layout(plan, clash, ROOMY)
    )
    away = {**places, first: (1 << 18, places[first][1])}
    assert any("ends at" in said for _, said in check_layout(plan, away, ROOMY))
    odd = {**places, first: (places[first][0] + 1, places[first][1])}
    assert any("must be multiples" in said for _, said in check_layout(plan, odd, ROOMY))
    narrow = {**places, first: (places[first][0], 4)}
    assert any("do not go every 4" in said for _, said in check_layout(plan, narrow, ROOMY))
