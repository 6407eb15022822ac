"""Packings are legal, as low as can be where that is known, and found again in every run; by banks,
engines that would meet are kept apart, and nothing else is changed.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from networks import Net

from compiler.api import CompileOptions, compile_model, prepared
from compiler.decisions.text.text import parse_tree
from compiler.memory.bank_assignment import BankedMemory, Ints, separate, traffic
from compiler.memory.on_chip import PlacedGroup
from compiler.memory.packing import in_separate_times, lower_bound, pack
from compiler.memory.steady_state import SAMPLES, Phase, Stream, Task, phases
from compiler.schedule.residency.buffer import LiveRange as Item
from compiler.schedule.residency.buffer import Places, TileBuffer
from simmodel.arch.memories import Memory

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
        st.integers(smallest, 12), st.integers(0, steps), st.integers(0, 5), st.sampled_from(aligns)
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


BANKS, BANK = 4, 1024
MEMORY = Memory.model_validate(
    {"size": BANKS * BANK, "banks": BANKS, "bank_width": 16, "mapping": "blocked",
     "conflict_penalty": 0.5}
)  # fmt: skip


def buffer(name: str, size: int, slots: int = 1, first: int = 0, last: int = 0) -> TileBuffer:
    return TileBuffer(name, "local", "int8", (), (), size, slots, 0, first=first, last=last)


def task(engine: str, held: TileBuffer, rate: float, ahead: int = 0, cycles: float = 100.0) -> Task:
    """Works on all of a slot at `rate` bytes per cycle, `ahead` slots in front of the others."""
    slot = tuple((sample + ahead) % held.slots for sample in range(SAMPLES))
    moved = Stream(held.name, engine == "load", rate * cycles, slot, (0,) * SAMPLES, held.bytes)
    return Task(engine, cycles, 1, lambda: (moved,))


def space(
    between: Callable[[TileBuffer, TileBuffer], float] = lambda a, b: math.inf,
    size: int = MEMORY.size,
) -> BankedMemory:
    return BankedMemory(size, BANK, lambda b: 16, between)


def lost(tasks: list[Task], places: Places, memory: Memory = MEMORY) -> float:
    """Cycles that these tasks lose, all running together."""
    found = 0.0
    for seen in traffic([Phase(tuple(tasks), 1)], places, memory):
        total = sum(
            seen.demands(n, *(_column(places[n][i]) for i in (0, 1)))[0] for n in seen.buffers
        )
        found += float(seen.lost(total[None])[0])
    return found


def _column(value: int) -> Ints:
    return np.array([value])


def moved(tasks: list[Task], buffers: list[TileBuffer], start: Places) -> Places:
    seen = traffic([Phase(tuple(tasks), 1)], [b.name for b in buffers], MEMORY)
    return separate(start, buffers, seen, space())[0]


def test_what_engines_touch_together_goes_to_banks_of_its_own() -> None:
    a, b = buffer("a", 512), buffer("b", 512)
    tasks = [task("matrix", a, 16), task("load", b, 16)]
    start = {"a": (0, 512), "b": (512, 512)}
    places = moved(tasks, [a, b], start)
    assert lost(tasks, start) > 100
    assert lost(tasks, places) == 0
    assert places["a"][0] // BANK != places["b"][0] // BANK


def test_slots_of_one_buffer_are_separated() -> None:
    a = buffer("a", 256, slots=2)
    tasks = [task("matrix", a, 16), task("load", a, 16, ahead=1)]
    places = moved(tasks, [a], {"a": (0, 256)})
    base, pitch = places["a"]
    assert base // BANK != (base + pitch) // BANK
    assert lost(tasks, places) == 0


def test_one_stream_that_a_bank_is_too_slow_for_is_spread() -> None:
    a = buffer("a", 1024)
    tasks = [task("matrix", a, 32)]
    places = moved(tasks, [a], {"a": (0, 1024)})
    assert lost(tasks, places) == 0
    assert places["a"][0] % BANK


def test_sums_that_are_added_to_are_written_and_read_again() -> None:
    """By hand: 32 x 8 sums of 4 B; a depth of 64 on 8 rows is 8 products, of which the first, or
    each first of two turns over half of it, has nothing to add to."""
    arch = machine(
        matrix={
            "kind": "systolic", "rows": 8, "cols": 8, "depth": 1, "granularity": "tile",
            "dataflow": "weight-stationary", "fold_overlap": True,
        },
        accumulators=4096,
    )  # fmt: skip
    net = Net()
    name = net.op("MatMul", net.input(32, 64), net.weight(64, 8))
    model = prepared(net.model(name), "net")
    for loops, turns in ((": resident", 1), (": for k 32; resident", 2)):
        tree = f"tree net\nstep\n  core\n  layer {name}{loops}\n"
        made = compile_model(model, arch, CompileOptions("fp32", tree=parse_tree(tree)))
        (step,) = made.steps
        assert isinstance(step, PlacedGroup)
        (phase,) = phases(step.plan, arch)
        product = next(task for task in phase.tasks if task.engine == "matrix")
        sums = [(m.write, m.bytes) for m in product.streams if m.buffer.endswith("sums")]
        again = 8 / turns
        assert sums == [(True, again * 1024), (False, (again - 1 / turns) * 1024)]
        # They move while rows pass the array, two cycles each, not while it fills.
        assert product.cycles == again * 2 * 32


def test_buffers_are_exchanged_where_there_is_no_room_to_move() -> None:
    buffers = [buffer(name, 512) for name in "abcdefgh"]
    start = {b.name: (512 * n, 512) for n, b in enumerate(buffers)}
    tasks = [task("matrix", buffers[0], 16), task("load", buffers[1], 16)]
    places = moved(tasks, buffers, start)
    assert sorted(places.values()) == sorted(start.values())
    assert lost(tasks, {n: places[n] for n in "ab"}) == 0


def test_a_phase_lasts_as_long_as_its_busiest_engine() -> None:
    a = buffer("a", 256)
    tasks = [task("matrix", a, 1), task("load", a, 1, cycles=150.0), task("matrix", a, 1)]
    phase = Phase(tuple(tasks), 3)
    assert (phase.engines, phase.period) == ({"matrix": 200.0, "load": 150.0}, 200.0)


def test_each_direction_is_as_quick_as_its_ports() -> None:
    """By hand: 3200 bytes in one bank whose port moves 16 per cycle, 200 cycles instead of 100;
    a tenth more, which the work of every engine counts."""
    a = buffer("a", 512)
    memory = MEMORY.model_copy(update={"read_ports": 2, "write_ports": 1})
    assert lost([task("matrix", a, 32)], {"a": (0, 512)}, memory) == 0
    assert lost([task("load", a, 32)], {"a": (0, 512)}, memory) == pytest.approx(110)


def test_space_is_not_used_again_where_the_wait_costs_more() -> None:
    a, hot = buffer("a", 512), buffer("hot", 256)
    b = buffer("b", MEMORY.size - 768, first=1, last=1)
    tasks = [task("matrix", a, 16), task("load", hot, 16)]
    start = {"hot": (0, 256), "a": (256, 512), "b": (768, b.bytes)}
    seen = traffic([Phase(tuple(tasks), 1)], ["a", "hot"], MEMORY)
    dear, cheap = (
        separate(start, [a, b, hot], seen, space(_between(price)))[0] for price in (1e6, 1.0)
    )
    assert dear == start
    assert lost(tasks, {n: cheap[n] for n in ("a", "hot")}) == 0


def _between(price: float) -> Callable[[TileBuffer, TileBuffer], float]:
    return lambda a, b: math.inf if a.first == b.first else price


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[TileBuffer], Places, list[Phase]]:
    buffers, places, end = [], {}, 0
    for number in range(draw(st.integers(1, 6))):
        size = 16 * draw(st.integers(1, 24))
        first = draw(st.integers(0, 2))
        made = buffer(f"b{number}", size, draw(st.integers(1, 2)), first, first + 1)
        if end + size * made.slots > MEMORY.size:
            break
        buffers.append(made)
        places[made.name] = (end, size)
        end += size * made.slots
    phases = []
    for _ in range(draw(st.integers(1, 3))):
        engines = draw(st.lists(st.sampled_from(("matrix", "vector", "load", "store")), max_size=4))
        tasks = tuple(
            task(engine, draw(st.sampled_from(buffers)), draw(st.sampled_from((2.0, 16.0, 40.0))),
                 ahead=number, cycles=draw(st.sampled_from((10.0, 300.0))))
            for number, engine in enumerate(engines)
        )  # fmt: skip
        phases.append(Phase(tasks, draw(st.integers(1, 3))))
    return buffers, places, phases


@settings(max_examples=150)
@given(cases())
def test_live_buffers_never_meet_and_nothing_leaves_the_memory(
    case: tuple[list[TileBuffer], Places, list[Phase]],
) -> None:
    buffers, start, phases = case
    seen = traffic(phases, start, MEMORY)
    limit = max(address + pitch * 2 for address, pitch in start.values())
    limit = min(MEMORY.size, limit)
    live = space(lambda a, b: math.inf if a.first <= b.last and b.first <= a.last else 0.0, limit)
    places, cost = separate(start, buffers, seen, live)
    assert (places, cost) == separate(start, buffers, seen, live)
    spans = {}
    for b in buffers:
        address, pitch = places[b.name]
        assert pitch >= b.bytes and address % 16 == 0 and pitch % 16 == 0
        spans[b.name] = (address, address + pitch * (b.slots - 1) + b.bytes)
        assert address >= 0 and spans[b.name][1] <= limit
    for a in buffers:
        for b in buffers:
            if a is b or a.first > b.last or b.first > a.last:
                continue
            (low, high), (other, end) = spans[a.name], spans[b.name]
            assert high <= other or end <= low
