"""Reshapes that merge open axes: what each axis of their results is made of."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from compiler.frontend.canonicalize.symbolic_axes import (
    Piece,
    Pieces,
    extents,
    has_gaps,
    merged,
    pieces_of,
)

OPEN = (7, 11, 13, 17)
"""Extents of open axes, which no fixed one is a multiple of."""


def axes(shape: Sequence[int]) -> Pieces:
    return tuple(Piece(extent, extent in OPEN) for extent in shape)


def runs(source: Sequence[int], target: Sequence[int]) -> list[list[int]] | None:
    found = merged(axes(source), axes(target))
    return None if found is None else [[piece.extent for piece in pieces] for pieces in found]


def test_open_axes_that_become_one_are_kept() -> None:
    assert runs([7, 11, 12], [77, 12]) == [[7, 11], [12]]
    assert runs([7, 11, 12], [77, 3, 4]) == [[7, 11], [3], [4]]
    assert runs([7, 11, 12], [77, 1, 12]) == [[7, 11], [1], [12]]
    assert runs([7, 11, 12], [1, 77, 12]) == [[1], [7, 11], [12]]
    assert runs([5, 11, 12], [55, 12]) == [[5, 11], [12]]
    assert runs([7, 11, 12], [77 * 3, 4]) == [[7, 11, 3], [4]]
    assert runs([7, 11, 12], [77 * 12]) == [[7, 11, 12]]
    assert runs([7, 1, 11, 12], [77, 12]) == [[7, 1, 11], [12]]


def test_axes_without_gaps_are_merged() -> None:
    assert runs([7, 5, 12], [35, 12]) == [[35], [12]]
    assert runs([7, 11, 12], [7, 11, 3, 4]) == [[7], [11], [3], [4]]
    assert runs([1, 7, 12], [7, 12]) == [[7], [12]]
    assert runs([7, 11, 3, 4], [7, 33, 4]) == [[7], [33], [4]]
    assert runs([5, 6, 12], [30, 12]) == [[30], [12]]


def test_what_cannot_be_told_is_nothing() -> None:
    assert runs([7, 11, 12], [11, 7, 12]) is None
    assert runs([7, 11, 10], [77 * 5 // 7, 14]) is None
    assert runs([0, 11], [11, 0]) is None


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    """Extents of axes, and how they are merged."""
    fixed, open_axes = st.sampled_from((2, 3, 4)), st.sampled_from(OPEN)
    source = draw(st.lists(st.one_of(fixed, open_axes), min_size=1, max_size=6))
    groups: list[list[int]] = []
    for extent in source:
        if groups and draw(st.booleans()):
            groups[-1].append(extent)
        else:
            groups.append([extent])
    return source, groups


@given(reshapes())
def test_each_axis_is_as_long_as_what_it_is_made_of(net: tuple[list[int], list[list[int]]]) -> None:
    source, groups = net
    target = [prod(group) for group in groups]
    made = [any(extent in OPEN for extent in group) for group in groups]
    found = merged(axes(source), pieces_of(target, [a for a, o in enumerate(made) if o]))
    assert found is not None
    assert [prod(extents([pieces])) for pieces in found] == target
    for group, pieces in zip(groups, found, strict=True):
        apart = has_gaps(axes(group))
        assert [piece.extent for piece in pieces] == (group if apart else [prod(group)])
