"""Views read as what they are views of."""

from __future__ import annotations

from dataclasses import replace

from compiler.tensor_ir.build import through
from compiler.tensor_ir.nest import Access, Affine, Storage, Tensor, at

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
