"""Loops before they become instructions: what is one loop, where rows are cut, what covers them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from test_emit_legal import flat, vectors

from compiler.codegen.legalize import Names, axes_of, legal_vector
from compiler.target.loops.cover import (
    OperandPort,
    ReductionKind,
    StoredOperand,
    Unit,
    cheapest,
    covers,
    cuts,
    shown,
    unit_of,
)
from compiler.target.loops.split import Reach, StridedLoop, collapse, ends, runs
from simmodel.arch.record import Arch
from simmodel.isa import Reduce, VectorFamily

WIDE = {"size": 1 << 20, "banks": 64, "bank_width": 512}
"""A memory that nothing waits for."""


def strided(loops: list[tuple[int, ...]]) -> list[StridedLoop]:
    """Loops by their extent, and the bytes that they move what is written and what is read."""
    return [StridedLoop(extent, tuple(steps)) for extent, *steps in loops]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([(4, 128, 128), (8, 16, 16), (16, 1, 1)], [(512, 1, 1)]),
        ([(4, 128, 16), (8, 16, 0), (16, 1, 1)], [(4, 128, 16), (8, 16, 0), (16, 1, 1)]),
        ([(64, 1, 49), (7, 448, 7), (7, 64, 1)], [(49, 64, 1), (64, 1, 49)]),
        ([(3, 10, 5), (1, 10, 9), (5, 2, 1)], [(15, 2, 1)]),
    ],
)
def test_what_all_walk_as_one_is_one_loop(
    before: list[tuple[int, ...]], after: list[tuple[int, ...]]
) -> None:
    found = collapse(strided(before))
    assert [(axis.extent, *axis.steps) for axis in found] == after


@pytest.mark.parametrize(
    ("extent", "spare", "sizes"),
    [
        (200, False, [200]),
        (1000, False, [256, 250]),
        (1000, True, [1000, 768, 256, 250]),
        (1009, False, [256]),
    ],
)
def test_a_long_row_is_cut_in_longest_or_in_equal_pieces(
    extent: int, spare: bool, sizes: list[int]
) -> None:
    assert list(cuts(extent, 256, 1, spare=spare)) == sizes


@pytest.mark.parametrize(
    ("rank", "longest", "loops", "text"),
    [
        (2, 256, [(4, 200, 200), (8, 20, 20), (16, 1, 1)], "4 x [8 x 16]"),
        (1, 256, [(3, 2000, 2000), (1000, 1, 1)], "3 x 3 x [256] + 3 x [232]"),
        (1, 256, [(1009, 1, 1)], "3 x [256] + [241]"),
        (2, 256, [(1, 1, 1)], "[1]"),
    ],
)
def test_a_cover_says_loops_around_what_is_walked(
    rank: int, longest: int, loops: list[tuple[int, ...]], text: str
) -> None:
    port = OperandPort(("local", False), 1, 1, 64.0)
    unit = Unit(rank, longest, 16, 1.0, 6, 0.0, (port, port), port)
    found = collapse(strided(loops))
    assert shown(cheapest(unit, found), found) == text


def test_a_reduction_walks_what_is_not_reduced_where_that_is_quicker() -> None:
    """A mean over 49 rows of 512 channels by an engine of one dimension, 16 lanes, rows of 256 at
    most, 6 cycles of start-up: 512 instructions of 4 vectors, or 49 times 2 of 16 vectors."""
    ports = OperandPort(("local", False), 4, 1, 1e9), OperandPort(("local", False), 1, 1, 1e9)
    unit = Unit(1, 256, 16, 1.0, 6, 0.0, ports, ports[0])
    loops = collapse(strided([(49, 0, 512), (512, 4, 1)]), 1)
    found = {
        cover.inside: cover.cycles for cover in covers(unit, loops, ReductionKind(reduces=True))
    }
    # What it reads and writes is nothing to such memories but a cycle at least.
    assert found == {(0,): 512 * (6 + 4), (1,): 49 * 2 * (6 + 16)}
    assert cheapest(unit, loops, ReductionKind(reduces=True)).inside == (1,)
    said = [shown(cover, loops) for cover in covers(unit, loops, ReductionKind(reduces=True))]
    assert said == ["49 x 2 x [256]", "512 x [49]"]
    whole = ReductionKind(reduces=True, joins=False)
    assert [cover.inside for cover in covers(unit, loops, whole)] == [(0,)]


@settings(max_examples=60)
@given(vectors())
def test_a_cover_costs_what_its_instructions_cost(case: tuple[VectorFamily, Arch]) -> None:
    wide, arch = case
    arch = machine(
        local=WIDE, vector={"rank": arch.vector.rank, "max_extent": arch.vector.max_extent}
    )
    lead, walked = int(isinstance(wide, Reduce)), (wide.dst, *wide.reads())
    held = [StoredOperand(operand.memory, operand.itemsize) for operand in walked]
    unit = unit_of(arch, (wide.form, wide.cost()), held)
    cover = cheapest(unit, collapse(axes_of(walked), lead), ReductionKind(bool(lead)))
    made = [item for item, _ in flat(legal_vector(wide, arch, Names()), {})]
    assert cover.count == len(made)
    assert cover.cycles == pytest.approx(
        sum(max(1, item.cycles(arch)) + item.startup(arch) for item in made), rel=0.02
    )


@pytest.mark.parametrize(
    ("extent", "size", "marks", "text"),
    [
        (20, 8, (False, False), "2 x 8 at 0\n1 x 4 at 16"),
        (24, 8, (True, True), "1 x 8 at 0\n1 x 8 at 8\n1 x 8 at 16"),
        (32, 8, (True, False), "1 x 8 at 0\n3 x 8 at 8"),
        (5, 8, (True, True), "1 x 5 at 0"),
    ],
)
def test_remainders_and_the_ends_of_sums_stand_alone(
    extent: int, size: int, marks: tuple[bool, bool], text: str
) -> None:
    alone = ends(-(-extent // size), first=marks[0], last=marks[1])
    found = runs(extent, size, alone) if any(marks) else runs(extent, size)
    assert "\n".join(f"{run.times} x {run.size} at {run.start}" for run in found) == text


@given(
    st.integers(1, 60), st.integers(1, 20), st.integers(0, 9),
    st.builds(Reach, st.integers(1, 3), st.integers(-4, 2), st.integers(0, 6), st.integers(1, 60)),
)  # fmt: skip
def test_runs_cover_once_and_their_condition_holds_for_each_piece(
    extent: int, size: int, low: int, reach: Reach
) -> None:
    """Each run counts from zero; neighbours differ in what holds, so none could be longer."""
    holds = [None, lambda number, start, here: reach.out(start, here)]
    for condition in holds:
        found = runs(extent, size, condition, low)
        pieces = [(run, run.start + n * size) for run in found for n in range(run.times)]
        positions = [start + i for run, start in pieces for i in range(run.size)]
        assert positions == list(range(low, low + extent))
        assert [run.first for run in found] == [
            sum(run.times for run in found[:n]) for n in range(len(found))
        ]
        for run, start in pieces:
            said = None if condition is None else reach.out(start, run.size)
            assert run.holds == said
        assert all((a.size, a.holds) != (b.size, b.holds) for a, b in pairwise(found))
