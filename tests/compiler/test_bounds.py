"""Boxes: what `needed` and `clipped` say is what enumerating every position says."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.tensor_ir.bounds import Box, clipped, full, needed, union
from compiler.tensor_ir.nest import Access, Affine, Dim, Nest

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
