"""Operands: addresses of loops and rings, runs, spans, and what a walk merges; expansion has the
order, turns and addresses of walking the loops.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from handmade import at
from hypothesis import given, settings
from hypothesis import strategies as st

from simmodel.isa import Copy, Item, Loop, Sync
from simmodel.isa.region import Address, Operand, Ring, contiguous, replace, walk
from simmodel.program.expand import addresses, expand


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


VARIABLES = "abc"


@st.composite
def bodies(draw: st.DrawFn, bound: str = "") -> tuple[Item, ...]:
    """Copies at addresses that all enclosing loops move; origins tell them apart."""
    found: list[Item] = []
    for _ in range(draw(st.integers(0, 3))):
        if len(bound) < len(VARIABLES) and draw(st.booleans()):
            variable = VARIABLES[len(bound)]
            body = draw(bodies(bound + variable))
            found.append(Loop(variable, draw(st.integers(1, 3)), body))
            continue
        steps = {v: draw(st.integers(0, 9)) for v in bound}
        ring_terms = tuple((v, draw(st.integers(0, 2))) for v in bound)
        ring = draw(st.none() | st.just(Ring(draw(st.integers(1, 3)), 500, 1, ring_terms)))
        found.append(
            Copy(
                engine="load",
                origin=draw(st.integers(0, 999)),
                src=at("dram", 0, (2,), terms=steps),
                dst=at("local", 4000, (2,), terms=steps, ring=ring),
                waits=draw(st.sampled_from([(), (("t", 1),)])),
            )
        )
    return tuple(found)


def walked(items: tuple[Item, ...], values: dict[str, int]) -> list[tuple[int, int, int]]:
    """(origin, source, target) of each instruction, by walking the loops."""
    found: list[tuple[int, int, int]] = []
    for item in items:
        if isinstance(item, Loop):
            for value in range(item.count):
                found += walked(item.body, {**values, item.variable: value})
        else:
            assert isinstance(item, Copy)
            source, target = item.src.address.at(values), item.dst.address.at(values)
            found.append((item.origin, source, target))
    return found


def expanded(items: tuple[Item, ...]) -> list[tuple[int, int, int]]:
    """The same from the expansion, repeats spelled out."""
    expansion, found = expand(items), []
    pairs = zip(expansion.order.tolist(), expansion.occurrence.tolist(), strict=True)
    for index, turn in pairs:
        site = expansion.sites[index]
        base = [int(a[turn]) for a in site.addresses]
        steps = zip(*(addresses(Address(0, o.address.terms), site.repeats) for o in (
            site.instruction.reads()[0], site.instruction.writes()[0])), strict=True)  # fmt: skip
        found += [(site.instruction.origin, base[0] + s, base[1] + t) for s, t in steps]
    return found


@settings(max_examples=200)
@given(bodies())
def test_occurrences_are_those_of_walking_the_loops(items: tuple[Item, ...]) -> None:
    assert expanded(items) == walked(items, {})
    assert expand(items).issued == len(walked(items, {}))


def burst(**changes: Any) -> int:
    """Instructions that the only site of a loop of 8 copies stands for."""
    record: dict[str, Any] = {
        "engine": "load",
        "src": at("dram", 0, (4,), terms={"i": 4}),
        "dst": at("local", 0, (4,), terms={"i": 4}),
    }
    expansion = expand((Loop("i", 8, (Copy(**(record | changes)),)),))
    return expansion.sites[0].times


def test_loops_that_carry_nothing_are_one_occurrence() -> None:
    assert burst() == 8


def test_loops_with_an_order_are_walked() -> None:
    assert burst(waits=(("t", 1),)) == 1
    assert burst(signals=(("t", 1),)) == 1
    assert burst(dst=at("local", 0, (4,))) == 1, "the last one wins"
    assert burst(dst=at("local", 0, (4,), terms={"i": 2})) == 1, "neighbours overlap"
    assert burst(dst=at("local", 0, (4,), ring=Ring(2, 4, 0, (("i", 1),)))) == 1, "slots return"
    assert (
        burst(src=at("local", 0, (4,), terms={"i": 4}), dst=at("local", 4, (4,), terms={"i": 4}))
        == 1
    )


def test_an_empty_stream_and_empty_loops_have_no_occurrences() -> None:
    assert expand(()).issued == 0
    assert expand((Loop("i", 5, ()),)).issued == 0
    assert expand((Loop("i", 5, (Sync(engine="load"),)),)).issued == 5


def test_a_replaced_record_knows_nothing_that_followed_from_its_old_fields() -> None:
    old = Operand("local", Address(0), (4, 8), contiguous((4, 8), 1), "int8")
    assert old.span == (0, 32)
    new = replace(old, shape=(2, 8), address=Address(64))
    assert new == dataclasses.replace(old, shape=(2, 8), address=Address(64))
    assert new.span == (0, 16)
    assert old.address == Address(0)
