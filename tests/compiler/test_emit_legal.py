"""Loops before they become instructions: what is one loop, where rows are cut, what covers them.
Instructions wrapped in loops do what the one wide instruction did, within rank and extent.

The wide instruction runs on one copy of a memory of random bytes, the legal ones on another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from numpy.typing import NDArray

from compiler.codegen.legalize import Names, axes_of, legal_copy, legal_vector
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
from simmodel.arch.dtype import NUMPY
from simmodel.arch.record import Arch
from simmodel.isa import Binary, Copy, Instruction, Item, Loop, Reduce, Splat, Unary, Window
from simmodel.isa.region import Address, Operand
from simmodel.isa.vector import VectorFamily

SPACE = 1 << 16
Memory = dict[str, NDArray[np.uint8]]


def fresh() -> Memory:
    rng = np.random.default_rng(5)
    return {
        "local": rng.integers(0, 64, SPACE, dtype=np.uint8),
        "dram": rng.integers(0, 64, SPACE, dtype=np.uint8),
    }


def flat(items: list[Item], values: Mapping[str, int]) -> Iterator[tuple[Instruction, Any]]:
    """Every instruction with the loop variables' values, in program order."""
    for item in items:
        if isinstance(item, Loop):
            assert item.count > 1
            for turn in range(item.count):
                yield from flat(list(item.body), {**values, item.variable: turn})
        else:
            yield item, values


def effect(items: list[Item], memory: Memory) -> None:
    for instruction, values in flat(items, {}):

        def view(operand: Operand, at: Mapping[str, int] = values) -> NDArray[Any]:
            raw = memory[operand.memory]
            start = operand.address.at(at)
            return np.ndarray(operand.shape, NUMPY[operand.dtype], raw, start, operand.strides)

        instruction.execute(view)


def same(wide: Instruction, items: list[Item], arch: Arch) -> None:
    for instruction, _ in flat(items, {}):
        assert instruction.unencodable(arch) is None
        assert not list(instruction.contract())
    before, after = fresh(), fresh()
    effect([wide], before)
    effect(items, after)
    for role in before:
        np.testing.assert_array_equal(after[role], before[role])


def strided(draw: st.DrawFn, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Strides of a box that is dense but for gaps, its axes in any order."""
    strides = [size] * len(shape)
    step = size
    for axis in draw(st.permutations(range(len(shape)))):
        strides[axis] = step
        step *= shape[axis] + draw(st.sampled_from((0, 0, 1)))
    return tuple(strides)


SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple).filter(
    lambda shape: np.prod(shape) < 500
)  # fmt: skip
LIMITS = st.sampled_from((None, 1, 3, 7))
KINDS = st.sampled_from(("int8", "int32"))


def operand(draw: st.DrawFn, base: int, shape: tuple[int, ...], dtype: str) -> Operand:
    strides = strided(draw, shape, NUMPY[dtype].itemsize)
    return Operand("local", Address(base), shape, strides, dtype)


def engine(draw: st.DrawFn) -> Arch:
    vector = {"rank": draw(st.integers(1, 3)), "max_extent": draw(LIMITS)}
    return machine(
        vector=vector, copy={"rank": draw(st.integers(1, 4)), "pad": draw(st.booleans())}
    )


@st.composite
def vectors(draw: st.DrawFn) -> tuple[VectorFamily, Arch]:
    shape = draw(SHAPES)
    kind = draw(st.sampled_from(("splat", "unary", "binary", "max", "sum", "sum")))
    a = operand(draw, 0, shape, "int8" if kind == "sum" else draw(KINDS))
    arch = engine(draw)
    if kind == "splat":
        dst = operand(draw, 40000, shape, draw(KINDS))
        return Splat(engine="vector", dst=dst, value=-77.0), arch
    if kind == "unary":
        dst = operand(draw, 40000, shape, draw(KINDS))
        return Unary(engine="vector", function="abs", dst=dst, a=a), arch
    if kind == "binary":
        dst, b = operand(draw, 40000, shape, "int32"), operand(draw, 20000, shape, "int8")
        still = draw(st.integers(0, len(shape) - 1))
        strides = tuple(0 if axis == still else s for axis, s in enumerate(b.strides))
        b = Operand("local", b.address, shape, strides, "int8")
        return Binary(engine="vector", function="sub", dst=dst, a=a, b=b), arch
    kept = tuple(1 if draw(st.booleans()) else extent for extent in shape)
    dst = operand(draw, 40000, kept, "int32")
    return Reduce(engine="vector", function=kind, dst=dst, a=a), arch


@st.composite
def windows(draw: st.DrawFn) -> tuple[Window, Arch]:
    lead = draw(st.sampled_from(((), (2,))))
    rows, cols, deep = draw(st.tuples(*[st.integers(1, 8)] * 3))
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 2)))
    stride = (draw(st.integers(1, 2)), 1)
    extent = ((rows - 1) * stride[0] + kernel[0], cols - 1 + kernel[1])
    a = operand(draw, 0, (*lead, *extent, deep), "int8")
    dst = operand(draw, 40000, (*lead, rows, cols, deep), "int32")
    w = operand(draw, 20000, (*lead, *kernel, deep), "int8") if draw(st.booleans()) else None
    wide = Window(engine="vector", function="sum", dst=dst, a=a, w=w, kernel=kernel, stride=stride)
    return wide, machine(vector={"max_extent": draw(LIMITS)})


@settings(max_examples=200)
@given(st.one_of(vectors(), windows()))
def test_vector_instructions_keep_their_effect(case: tuple[VectorFamily, Arch]) -> None:
    wide, arch = case
    same(wide, legal_vector(wide, arch, Names()), arch)


@st.composite
def copies(draw: st.DrawFn) -> tuple[Copy, Arch]:
    shape = draw(SHAPES)
    before: tuple[int, ...] = ()
    padded = shape
    if draw(st.booleans()):
        sides = [draw(st.tuples(*[st.sampled_from((0, 0, 1, 2))] * 2)) for _ in shape]
        before = tuple(front for front, _ in sides)
        padded = tuple(n + front + back for n, (front, back) in zip(shape, sides, strict=True))
    dtype = draw(KINDS)
    source, target = operand(draw, 0, shape, dtype), operand(draw, 0, padded, dtype)
    source = Operand("dram", source.address, shape, source.strides, dtype)
    if before and padded == shape:
        before = ()
    return Copy(engine="load", dst=target, src=source, before=before, fill=3.0), engine(draw)


@settings(max_examples=150)
@given(copies())
def test_copies_keep_their_effect(case: tuple[Copy, Arch]) -> None:
    wide, arch = case
    same(wide, legal_copy(wide, arch, Names()), arch)


def test_a_reduction_in_pieces_joins_them() -> None:
    """30 positions, each the sum of 10, by an engine that takes 4 along one dimension: two pieces
    of each row; what is left of the rows, 2 by 30, the other way round, 7 fours and a two, twice.
    """
    arch = machine(vector={"rank": 1, "max_extent": 4})
    a = Operand("local", Address(0), (30, 10), (10, 1), "int8")
    dst = Operand("local", Address(40000), (30, 1), (4, 4), "int32")
    wide = Reduce(engine="vector", function="sum", dst=dst, a=a)
    items = legal_vector(wide, arch, Names())
    same(wide, items, arch)
    made = [i for i, _ in flat(items, {}) if isinstance(i, Reduce)]
    assert sum(i.partial is None for i in made) == 30
    assert sum(i.partial is not None for i in made) == 30 + 2 * 8


@pytest.mark.parametrize(
    ("shape", "rank", "count"),
    [
        ((32,), 2, 1),
        ((35,), 2, 1),
        ((37,), 2, 2),
        ((2, 32), 2, 2),
        ((16, 32), 2, 4),
        ((2, 32), 3, 1),
    ],
)
def test_long_rows_are_few_instructions(shape: tuple[int, ...], rank: int, count: int) -> None:
    """By an engine that takes 8 of a row: all as rows of 8 or of 7, row by row, or one piece of
    all; of 37 a rest is left."""
    arch = machine(vector={"rank": rank, "max_extent": 8})
    gaps = tuple(40 * bool(axis < len(shape) - 1) or 1 for axis in range(len(shape)))
    a, dst = (Operand("local", Address(base), shape, gaps, "int8") for base in (0, 40000))
    wide = Unary(engine="vector", function="abs", dst=dst, a=a)
    items = legal_vector(wide, arch, Names())
    same(wide, items, arch)
    assert len(list(flat(items, {}))) == count


WIDE = {"size": 1 << 20, "banks": 64, "bank_width": 512}
"""A memory that nothing waits for."""


def loops_of(loops: list[tuple[int, ...]]) -> list[StridedLoop]:
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
    found = collapse(loops_of(before))
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
    found = collapse(loops_of(loops))
    assert shown(cheapest(unit, found), found) == text


def test_a_reduction_walks_what_is_not_reduced_where_that_is_quicker() -> None:
    """A mean over 49 rows of 512 channels by an engine of one dimension, 16 lanes, rows of 256 at
    most, 6 cycles of start-up: 512 instructions of 4 vectors, or 49 times 2 of 16 vectors."""
    ports = OperandPort(("local", False), 4, 1, 1e9), OperandPort(("local", False), 1, 1, 1e9)
    unit = Unit(1, 256, 16, 1.0, 6, 0.0, ports, ports[0])
    loops = collapse(loops_of([(49, 0, 512), (512, 4, 1)]), 1)
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
