"""Operands: addresses of loops and rings, runs, spans, and what a walk merges."""

from __future__ import annotations

import math

import pytest
from handmade import at
from hypothesis import given
from hypothesis import strategies as st

from simmodel.isa.region import Address, Operand, Ring, contiguous, walk


def offsets(operand: Operand) -> list[int]:
    """Byte offset of every element, in walking order."""
    found = [0]
    for extent, stride in zip(operand.shape, operand.strides, strict=True):
        found = [o + i * stride for o in found for i in range(extent)]
    return found


def touched(operand: Operand) -> set[int]:
    return {o + b for o in offsets(operand) for b in range(operand.itemsize)}


@st.composite
def boxes(draw: st.DrawFn) -> Operand:
    """Boxes that do not overlap themselves, dimensions in any order, some repeated or reversed."""
    dtype = draw(st.sampled_from(["int8", "fp16", "int32"]))
    size, dims = at("local", 0, (1,), dtype).itemsize, []
    for _ in range(draw(st.integers(0, 4))):
        extent = draw(st.integers(1, 4))
        stride = size * draw(st.integers(1, 2))
        kind = draw(st.sampled_from([1, 1, 1, -1, 0]))
        dims.append((extent, kind * stride))
        if kind:
            size = stride * extent
    dims = draw(st.permutations(dims))
    shape, strides = tuple(d[0] for d in dims), tuple(d[1] for d in dims)
    return at("local", 0, shape, dtype, strides=strides)


@given(boxes())
def test_span_and_distinct_count_the_bytes_touched(box: Operand) -> None:
    bytes_ = touched(box)
    assert box.span == (min(bytes_), max(bytes_) + 1)
    assert box.distinct == len(bytes_)
    assert box.elements == len(offsets(box)) and box.bytes == box.elements * box.itemsize


@given(boxes())
def test_collapsed_dimensions_are_the_same_bytes(box: Operand) -> None:
    dims = box.collapsed
    same = at("local", 0, tuple(n for n, _ in dims), box.dtype, strides=tuple(s for _, s in dims))
    if dims:
        assert touched(same) == touched(box)
    assert len(dims) <= sum(n > 1 for n in box.shape)


def test_runs_and_granules() -> None:
    rows = at("local", 0, (4, 8), "fp16", strides=(64, 2))
    assert (rows.run, rows.distinct) == (16, 64)
    assert rows.traffic(16) == 64 and rows.traffic(64) == 4 * 64
    column = at("local", 0, (4, 1), strides=(64, 1))
    assert column.run == 1 and column.traffic(32) == 128
    assert at("local", 0, (4, 8)).run == 32


@given(
    st.integers(0, 999),
    st.lists(st.tuples(st.sampled_from("ij"), st.integers(-9, 9)), max_size=3).map(tuple),
    st.integers(1, 4),
    st.integers(0, 5),
)
def test_an_address_is_a_sum_and_a_ring(
    base: int, terms: tuple[tuple[str, int], ...], slots: int, offset: int
) -> None:
    address = Address(base, terms, Ring(slots, 100, offset, (("j", 1),)))
    values = {"i": 3, "j": 5}
    expected = base + sum(f * values[v] for v, f in terms) + 100 * ((offset + 5) % slots)
    assert address.at(values) == expected
    assert address.plus(7).at(values) == expected + 7 and address.plus(0) is address
    assert address.step("i") == sum(f for v, f in terms if v == "i")


@pytest.mark.parametrize(
    ("shape", "size", "strides"),
    [((), 4, ()), ((3,), 2, (2,)), ((2, 3, 4), 1, (12, 4, 1)), ((5, 1, 2), 4, (8, 8, 4))],
)
def test_contiguous_strides(shape: tuple[int, ...], size: int, strides: tuple[int, ...]) -> None:
    assert contiguous(shape, size) == strides


@pytest.mark.parametrize(
    ("operands", "extents"),
    [
        ((at("local", 0, (4, 8)), at("local", 0, (4, 8))), (32,)),
        ((at("local", 0, (4, 8)), at("local", 0, (4, 8), strides=(16, 1))), (4, 8)),
        ((at("local", 0, (4, 1, 8)), at("local", 0, (4, 1, 8), strides=(16, 0, 1))), (4, 8)),
        ((at("local", 0, (1, 1)),), (1,)),
        # The second stands still along the rows although its stride would continue them.
        ((at("local", 0, (4, 8)), at("local", 0, (1, 8))), (4, 8)),
        ((at("local", 0, (4, 8)), at("local", 0, (4, 8), strides=(0, 1))), (4, 8)),
    ],
)
def test_a_walk_merges_what_all_operands_walk_as_one(
    operands: tuple[Operand, ...], extents: tuple[int, ...]
) -> None:
    assert walk(operands) == extents
    assert math.prod(walk(operands)) == operands[0].elements
