"""Packings are legal, as low as can be where that is known, and found again in every run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.memory.packing import in_separate_times, lower_bound, pack
from compiler.schedule.residency.buffer import LiveRange as Item

# Every greedy sweep ends at 8 at least. The lowest end is 7, and steps 3 and 4 are full there:
#
#     . . a a d d
#     b b b b d d
#     b b b b d d
#     . g . e e e
#     . f f e e e
#     . f f e e e
#     . c c c c .
INTERLOCKED = [
    Item("a", 1, 2, 3),
    Item("b", 2, 0, 3),
    Item("c", 1, 1, 4),
    Item("d", 3, 4, 5),
    Item("e", 3, 3, 5),
    Item("f", 2, 1, 2),
    Item("g", 1, 1, 1),
]


def together(one: Item, two: Item) -> bool:
    return one.first <= two.last and two.first <= one.last


def check(items: Sequence[Item], addresses: dict[str, int] | None) -> int:
    """The end of a packing, which is legal."""
    assert addresses is not None
    assert addresses.keys() == {item.name for item in items}
    for item in items:
        assert addresses[item.name] >= 0
        assert addresses[item.name] % item.align == 0
    for one, two in itertools.combinations(items, 2):
        if together(one, two) and one.size and two.size:
            low, high = sorted((one, two), key=lambda item: addresses[item.name])
            assert addresses[low.name] + low.size <= addresses[high.name], (one, two)
    return max((addresses[item.name] + item.size for item in items if item.size), default=0)


def lowest_end(items: Sequence[Item]) -> int:
    """The best of all orders, each item on top of those before it: that misses no lowest end."""
    return min(map(_stacked, itertools.permutations(items)))


def _stacked(order: Sequence[Item]) -> int:
    tops: list[tuple[Item, int]] = []
    for item in order:
        below = max((top for other, top in tops if together(item, other)), default=0)
        tops.append((item, -(-below // item.align) * item.align + item.size))
    return max(top for _, top in tops)


@st.composite
def some_items(draw: st.DrawFn, most: int, smallest: int = 0) -> list[Item]:
    aligns = draw(st.sampled_from([(1,), (4,), (1, 2, 4), (2, 6)]))
    steps = draw(st.integers(1, 8))
    row = st.tuples(
        st.integers(smallest, 12),
        st.integers(0, steps),
        st.integers(0, 5),
        st.sampled_from(aligns),
    )
    return [
        Item(f"i{index}", size, first, first + life, align)
        for index, (size, first, life, align) in enumerate(
            draw(st.lists(row, min_size=smallest, max_size=most))
        )
    ]


def cut(rectangles: int, capacity: int, steps: int, seed: int) -> list[Item]:
    """A rectangle of capacity and steps cut into items: they fit without a byte to spare."""
    pick = random.Random(seed)
    parts = [(0, capacity, 0, steps)]
    while len(parts) < rectangles:
        low, high, first, end = parts.pop(pick.randrange(len(parts)))
        if pick.random() < 0.5 and high - low > 1:
            middle = pick.randrange(low + 1, high)
            parts += [(low, middle, first, end), (middle, high, first, end)]
        elif end - first > 1:
            middle = pick.randrange(first + 1, end)
            parts += [(low, high, first, middle), (low, high, middle, end)]
        else:
            parts.append((low, high, first, end))
    return [
        Item(f"p{index}", high - low, first, end - 1)
        for index, (low, high, first, end) in enumerate(parts)
    ]


@settings(max_examples=100)
@given(some_items(25), st.integers(0, 80), st.integers(0, 1))
def test_what_fits_ends_within_the_capacity(items: list[Item], capacity: int, effort: int) -> None:
    packing = pack(items, capacity, effort)
    if packing is None:
        assert items
    else:
        assert check(items, packing) <= capacity


@settings(max_examples=100)
@given(some_items(5, smallest=1))
def test_few_items_fit_down_to_their_lowest_end(items: list[Item]) -> None:
    lowest = lowest_end(items)
    assert lower_bound(items) <= check(items, pack(items, lowest)) <= lowest
    assert pack(items, lowest - 1) is None


def test_search_packs_what_no_greedy_order_does() -> None:
    assert lower_bound(INTERLOCKED) == 7
    assert pack(INTERLOCKED, 7, effort=0) is None
    assert check(INTERLOCKED, pack(INTERLOCKED, 7)) == 7
    assert check(INTERLOCKED, pack(INTERLOCKED, 8, effort=0)) == 8


@pytest.mark.parametrize("seed", range(6))
def test_a_rectangle_cut_in_pieces_is_put_together_again(seed: int) -> None:
    items = cut(60, capacity=1000, steps=40, seed=seed)
    assert lower_bound(items) == 1000
    assert check(items, pack(items, 1000)) == 1000


def test_only_what_lies_topmost_may_end_off_the_alignment() -> None:
    items = [Item("a", 5, 0, 0, align=4), Item("b", 6, 0, 0, align=4)]
    assert pack(items, 13) == {"a": 8, "b": 0}
    assert pack(items, 12) is None


def test_items_in_separate_times_share_addresses() -> None:
    items = [Item("a", 8, 0, 1), Item("b", 6, 2, 3), Item("c", 1, 3, 3), Item("d", 4, 5, 5)]
    assert [[i.name for i in g] for g in in_separate_times(items)] == [["a"], ["b", "c"], ["d"]]
    assert check(items, pack(items, 8)) == 8


def test_nothing_and_empty_items_take_no_room() -> None:
    assert pack([], 0) == {}
    items = [Item("empty", 0, 0, 9, align=4), Item("a", 4, 0, 0)]
    assert pack(items, 4) == {"empty": 0, "a": 0}


def test_wrong_items_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        pack([Item("a", 1, 0, 0), Item("a", 2, 0, 0)], 4)
    for size, first, last, align in ((-1, 0, 0, 1), (1, 1, 0, 1), (1, 0, 0, 0)):
        with pytest.raises(ValueError, match="'a'"):
            Item("a", size, first, last, align)
