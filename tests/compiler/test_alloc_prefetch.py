"""Loads ahead: constants find room long before their layer, and the work does not wait for them."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.memory.prefetch_addresses import Block, LoadPacing, prefetched
from compiler.schedule.residency.buffer import TileBuffer, earliest

GRAIN = 64


def held(name: str, size: int, first: int, last: int) -> TileBuffer:
    """What layers work on."""
    return TileBuffer(name, "local", "int8", (), (), size, 1, 0, first=first, last=last)


def loaded(name: str, size: int, layer: int, slots: int = 1) -> TileBuffer:
    """A constant of one layer."""
    key = (name, None, True)
    return TileBuffer(
        name, "local", "int8", (), (), size, slots, 0, key=key, layer=layer, first=layer, last=layer
    )


def meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether two spans, ends included, have something in common."""
    return a[0] <= b[1] and b[0] <= a[1]


def span(buffer: TileBuffer, place: tuple[int, int]) -> tuple[int, int]:
    """First and last byte."""
    return place[0], place[0] + place[1] * (buffer.slots - 1) + buffer.bytes - 1


def test_loads_find_room_as_far_back_as_there_is_any() -> None:
    free = [30.0, 10.0, 30.0, 30.0, 30.0]
    assert earliest([2, 3, 4], [10, 10, 10], free) == [0, 2, 2]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(9, 20))
def test_room_is_never_given_twice(sizes: list[int], size: int) -> None:
    layers = list(range(len(sizes)))
    found = earliest(layers, sizes, [float(size)] * len(sizes))
    assert found == list(accumulate(found, max))
    for layer in layers:
        there = (s for f, p, s in zip(found, layers, sizes, strict=True) if f <= layer <= p)
        assert sum(there) <= size


def pace(*work: float, rate: float = 1.0) -> LoadPacing:
    """Layers of these cycles."""
    return LoadPacing(tuple(work), rate)


def test_a_wait_that_room_avoids_is_avoided() -> None:
    buffers = [held("x", 640, 0, 0), held("y", 128, 1, 3), loaded("w", 640, 3)]
    made = {"x": (0, 640), "y": (640, 128), "w": (0, 640)}
    times = pace(1200, 50, 50, 100)
    found = prefetched(made, buffers, times, (1408, GRAIN), [])
    assert found is not None
    places, lives = found
    assert not meet(span(buffers[0], places["x"]), span(buffers[2], places["w"]))
    # It takes 640 cycles, and a quarter more to be safe: within the first layer, not before.
    assert lives["w"] == (1, 4)
    # With less room the constant comes behind the map either way: nothing to mend.
    assert prefetched(made, buffers, times, (1024, GRAIN), []) is None


def test_the_end_waits_for_loads_and_for_the_room_that_they_take() -> None:
    buffers = [loaded(f"w{p}", 640, p) for p in range(3)]
    made = {"w0": (0, 640), "w1": (640, 640), "w2": (640, 640)}
    times = pace(700, 700, 700)
    found = prefetched(made, buffers, times, (3 * 640, GRAIN), [])
    assert found is not None
    blocks = [Block(p, p, (b,), (640,)) for p, b in enumerate(buffers)]
    # The third load waits for the second layer, or for none.
    assert times.end(blocks, [0, 0, 3]) == 640 + 2 * 700 + 640 + 700
    assert times.end(blocks, [found[1][b.name][0] for b in buffers]) == 640 + 3 * 700


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[TileBuffer], tuple[float, ...]]:
    layers = draw(st.integers(3, 10))
    buffers = []
    for layer in range(layers):
        last = min(layers - 1, layer + draw(st.integers(1, 3)))
        buffers.append(held(f"x{layer}", GRAIN * draw(st.integers(1, 20)), layer, last))
        for number in range(draw(st.integers(0, 2))):
            size, slots = GRAIN * draw(st.integers(1, 30)) - 7, draw(st.integers(1, 2))
            buffers.append(loaded(f"w{layer}.{number}", size, layer, slots))
    work = draw(st.lists(st.integers(1, 3000), min_size=layers, max_size=layers))
    return buffers, tuple(map(float, work))


@settings(max_examples=150)
@given(groups(), st.integers(0, 40))
def test_what_is_alive_together_lies_apart(
    case: tuple[list[TileBuffer], tuple[float, ...]], more: int
) -> None:
    buffers, work = case
    worst = {b.name: (0, b.bytes) for b in buffers}
    layers = range(len(work))
    most = max(sum(2 * b.bytes for b in buffers if b.first <= p <= b.last) for p in layers)
    size = -(-most // GRAIN) * GRAIN + more * GRAIN
    found = prefetched(worst, buffers, LoadPacing(work, 1.0), (size, GRAIN), [(0, 128)])
    if found is None:
        return
    places, lives = found
    for number, a in enumerate(buffers):
        low, high = span(a, places[a.name])
        assert low % GRAIN == 0 and low >= 0 and high < size
        assert lives[a.name][0] <= a.first + 1 and lives[a.name][1] == a.last + 1
        if lives[a.name][0] == 0:
            assert low >= 128
        for b in buffers[:number]:
            apart = not meet((low, high), span(b, places[b.name]))
            assert apart or not meet((a.first, a.last), (b.first, b.last))
