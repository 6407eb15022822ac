"""Boxes and views: what `needed` and `clipped` say is what enumerating every position says."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.tensor_ir.bounds import Box, clipped, full, needed, union
from compiler.tensor_ir.build import through
from compiler.tensor_ir.nest import Access, Affine, Dim, Nest, Storage, Tensor, at

ranges = st.tuples(st.integers(0, 5), st.integers(1, 4))
affines = st.builds(
    Affine,
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(-3, 3)), max_size=3, unique_by=lambda term: term[0]
    ).map(tuple),
    st.integers(-6, 6),
)
boxes = st.tuples(st.integers(-6, 12), st.integers(1, 9))


@settings(max_examples=300)
@given(st.tuples(ranges, ranges, ranges), st.lists(affines, max_size=3))
def test_needed_is_the_smallest_box_of_all_positions(
    loops: tuple[tuple[int, int], ...], index: list[Affine]
) -> None:
    values = itertools.product(*(range(start, start + size) for start, size in loops))
    positions = [
        [a.constant + sum(k * value[d] for d, k in a.terms) for a in index] for value in values
    ]
    columns = list(zip(*positions, strict=True))
    enumerated = tuple((min(c), max(c) - min(c) + 1) for c in columns)
    assert needed(Access("x", tuple(index)), loops) == enumerated


@settings(max_examples=300)
@given(st.lists(st.tuples(boxes, st.integers(1, 8)), max_size=3))
def test_clipped_counts_positions_inside_in_front_and_behind(
    cases: list[tuple[tuple[int, int], int]],
) -> None:
    box: Box = tuple(b for b, _ in cases)
    region = clipped(box, tuple(extent for _, extent in cases))
    assert region.sizes == tuple(size for _, size in box)
    for axis, ((start, size), extent) in enumerate(cases):
        positions = range(start, start + size)
        inside = [p for p in positions if 0 <= p < extent]
        assert region.before[axis] == sum(p < 0 for p in positions)
        assert region.after[axis] == sum(p >= extent for p in positions)
        assert region.box[axis][1] == len(inside)
        assert not inside or region.box[axis][0] == inside[0]


@given(boxes, boxes)
def test_union_holds_both_and_no_more(a: tuple[int, int], b: tuple[int, int]) -> None:
    ((start, size),) = union((a,), (b,))
    assert start == min(a[0], b[0])
    assert start + size == max(sum(a), sum(b))


def test_reductions_run_over_everything() -> None:
    nest = Nest("y", (Dim("i", 8), Dim("r", 5)), 1, "move", (), "sum")
    assert full(nest, ((2, 3),)) == [(2, 3), (0, 5)]


# Views read as what they are views of.

BASE = Tensor("base", (1, 3, 1, 8), "fp16", Storage("base", 0, (24, 8, 8, 1)))
COPY = replace(BASE, name="view")
HALF = Tensor("view", (1, 3, 1, 4), "fp16", Storage("base", 0, (24, 8, 8, 2)))
WINDOW = Access("view", (at(0), at(1), Affine(((2, 1),), -1), at(3)), pad=0.0)
"""Reaches out of the one row at both sides."""


def test_every_second_column() -> None:
    plain = Access("view", (at(0), at(1), at(2), at(3)))
    found = through(plain, HALF, BASE)
    assert found is not None
    assert found.tensor == "base"
    assert found.index[3] == Affine(((3, 2),), 0)


def test_a_border_of_a_single_row_stays() -> None:
    assert through(WINDOW, COPY, BASE) == replace(WINDOW, tensor="base")


def test_a_border_inside_the_base_has_no_reading() -> None:
    assert through(WINDOW, HALF, BASE) is None
    later = replace(COPY, shape=(1, 3, 1, 7), storage=Storage("base", 1, (24, 8, 8, 1)))
    assert through(WINDOW, later, BASE) is None


def test_loops_of_one_turn_keep_their_roles() -> None:
    """A window of one position slides along a row of one: dropped, it would be no window."""
    single = replace(HALF, shape=(1, 3, 1, 1))
    window = Access("view", (at(0), at(1), Affine(((2, 1), (4, 1))), Affine(((3, 1), (5, 1)))))
    found = through(window, single, BASE)
    assert found is not None
    assert found.index[2].terms == ((2, 1), (4, 1))
    assert found.index[3].terms == ((3, 1), (5, 1))


def test_dimensions_of_extent_one_may_be_left_out_and_added() -> None:
    """Pooled maps as rows, and back: a batch of one keeps its loop."""
    pooled = Tensor("pooled", (1, 8, 1, 1), "int8", Storage("base", 0, (8, 1, 8, 8)))
    rows = Tensor("rows", (1, 8), "int8", Storage("base", 0, (8, 1)))
    found = through(Access("rows", (at(0), at(2))), rows, pooled)
    assert found == Access("pooled", (at(0), at(2), Affine(), Affine()))
    back = through(Access("pooled", (at(0), at(3), at(1), at(2))), pooled, rows)
    assert back == Access("rows", (at(0), at(3)))
