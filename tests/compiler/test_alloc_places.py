"""Placement: buffers that live at the same time never overlap, on chip and in DRAM."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine

from compiler.memory.on_chip import Lives, PlaceBuffers, ahead, turning
from compiler.memory.prefetch_addresses import Block, LoadPacing, prefetched
from compiler.plan.make_plan import Plan
from compiler.schedule.residency.buffer import GRAIN, LiveRange, Places, TileBuffer, earliest, place
from compiler.schedule_ir.schedule import OuterLoop
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch


@st.composite
def spans(draw: st.DrawFn) -> list[LiveRange]:
    made = []
    for number in range(draw(st.integers(0, 14))):
        first = draw(st.integers(0, 6))
        size = draw(st.sampled_from((1, 63, 64, 65, 500)))
        made.append(LiveRange(f"b{number}", size, first, first + draw(st.integers(0, 4)), GRAIN))
    return made


@given(spans(), st.sampled_from((0, 64, 640)))
def test_buffers_in_dram_do_not_meet(found: list[LiveRange], start: int) -> None:
    addresses, end = place(found, start)
    assert set(addresses) == {span.name for span in found}
    for number, a in enumerate(found):
        low = addresses[a.name]
        assert low % GRAIN == 0 and start <= low and low + a.size <= end
        for b in found[:number]:
            together = a.first <= b.last and b.first <= a.last
            apart = low + a.size <= addresses[b.name] or addresses[b.name] + b.size <= low
            assert apart or not together


def test_space_in_dram_is_used_again() -> None:
    chain = [LiveRange(f"b{i}", 640, i, i + 1) for i in range(20)]
    assert place(chain)[1] == 2 * 640


class Sketch(Plan):
    """A plan of buffers alone, of some layers, in a loop over tiles or not."""

    def __init__(
        self, buffers: list[TileBuffer], layers: int = 1, stores: tuple[str, ...] = (),
        *, looped: bool = False, constants: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        loops = (OuterLoop(0, 1),) if looped else ()
        data = {b.key[0]: () if b.name in constants else None for b in buffers if b.key}
        group = SimpleNamespace(
            name="sketch", reserved={}, room=lambda role, size: size,
            tensors={name: SimpleNamespace(data=found) for name, found in data.items()},
        )  # fmt: skip
        for name, value in (
            ("buffers", {b.name: b for b in buffers}),
            ("layers", (None,) * layers),
            ("stores", tuple((name, "store") for name in stores)),
            ("schedule", SimpleNamespace(group=group, loops=loops)),
        ):
            object.__setattr__(self, name, value)


def held(name: str, size: int, first: int, last: int, *, lasting: bool = False) -> TileBuffer:
    """What layers work on."""
    return TileBuffer(
        name, "local", "int8", (), (), size, 1, 1, first=first, last=last, lasting=lasting
    )


def loaded(name: str, size: int, layer: int, slots: int = 1) -> TileBuffer:
    """What one layer finds in DRAM."""
    return replace(held(name, size, layer, layer), key=(name, None, True), slots=slots)


@st.composite
def sketches(draw: st.DrawFn) -> tuple[Sketch, Arch]:
    alignment = draw(st.sampled_from((1, 2, 16, 64)))
    mapping = draw(st.sampled_from(("blocked", "interleaved")))
    buffers = []
    for number in range(draw(st.integers(1, 8))):
        dtype = draw(st.sampled_from(("int8", "fp16", "fp32")))
        grain = max(alignment, size_of(dtype))
        size = draw(st.integers(1, 20)) * grain
        buffers.append(TileBuffer(f"b{number}", "local", dtype, (), (), size,
                              draw(st.integers(1, 3)), 0))  # fmt: skip
    total = sum(b.bytes * b.slots for b in buffers)
    room = draw(st.sampled_from((0, 0, 256, 4096)))
    size = -(-(total + room) // 256) * 256 if room else -(-total // 64) * 64
    banks = 4 if size % 256 == 0 else 1
    local = {
        "size": size, "banks": banks, "bank_width": 16, "alignment": alignment, "mapping": mapping,
    }  # fmt: skip
    return Sketch(buffers), machine(local=local)


@settings(max_examples=150)
@given(sketches())
def test_whatever_fits_by_its_sum_is_placed(case: tuple[Sketch, Arch]) -> None:
    plan, arch = case
    places = PlaceBuffers(conflicts="blind").apply(plan, arch)
    taken: list[tuple[int, int]] = []
    for buffer in plan.buffers.values():
        base, pitch = places[buffer.name]
        for slot in range(buffer.slots):
            low = base + slot * pitch
            assert low % arch.memories.local.alignment == 0 and low % size_of(buffer.dtype) == 0
            taken.append((low, low + buffer.bytes))
    taken.sort()
    assert all(a[1] <= b[0] for a, b in pairwise(taken))
    assert taken[0][0] >= 0 and taken[-1][1] <= arch.memories.local.size


def test_small_constants_lie_behind_each_other() -> None:
    """One load begins after 6 cycles and moves 16 B a cycle: w is too long to wait for v, but b and
    scales are not. Where memory has no room for gaps they lie apart."""
    sizes = {"w": (300, 0), "b": (8, 0), "scales": (8, 1), "v": (300, 1)}
    constants = [replace(loaded(name, *size), level=0) for name, size in sizes.items()]
    plan = Sketch([held("x", 500, 0, 1), *constants], 2, constants=tuple(sizes))
    local = {"size": 2048, "banks": 1, "bank_width": 16, "alignment": 4}
    places = PlaceBuffers().apply(plan, machine(local=local))
    begins = places["w"][0]
    assert [places[name][0] - begins for name in ("b", "scales")] == [320, 384]
    tight = machine(local={**local, "size": 1120})
    apart = PlaceBuffers().apply(plan, tight)
    assert apart["b"][0] - apart["w"][0] != 320


def test_what_lies_behind_small_constants_begins_at_its_own_elements() -> None:
    """Constants of 66 B end where no fp32 may begin, and nothing leaves room for coarse gaps."""
    sizes = {"w": (8, "fp32"), "b": (2, "fp16")}
    constants = [
        replace(loaded(name, size, 0), level=0, dtype=kind) for name, (size, kind) in sizes.items()
    ]
    plan = Sketch([replace(held("x", 40, 0, 0), dtype="fp32"), *constants], constants=tuple(sizes))
    places = PlaceBuffers().apply(plan, machine(local={"size": 112, "banks": 1, "bank_width": 16}))
    assert places["b"][0] - places["w"][0] == 64
    assert places["x"][0] == 68


# Lives of buffers: in loops, what is loaded for the next tile finds room while this one ends.


def placed(buffers: list[TileBuffer], layers: int, size: int, *stores: str) -> Places:
    local = {"size": size, "banks": 1, "bank_width": GRAIN}
    return PlaceBuffers().apply(Sketch(buffers, layers, stores, looped=True), machine(local=local))


def share(places: Places, a: TileBuffer, b: TileBuffer) -> bool:
    """Whether two buffers have bytes in common."""
    low, high = (places[x.name][0] for x in (a, b))
    return low < high + b.bytes and high < low + a.bytes


@pytest.mark.parametrize(
    ("a", "b", "turn", "together"),
    [
        ((1, 2), (2, 3), 0, True),
        ((1, 2), (3, 4), 0, False),
        ((0, 1), (4, 4), 0, False),
        ((0, 1), (4, 4), 4, True),  # step 0 is the last layer of the tile before
        ((-1, 1), (3, 3), 4, True),
        ((-1, 1), (2, 2), 4, False),
        ((4, 5), (1, 1), 4, True),  # stored while the next tile begins
        ((4, 5), (2, 2), 4, False),
    ],
)
def test_steps_come_again_in_loops(
    a: tuple[int, int], b: tuple[int, int], turn: int, together: bool
) -> None:
    lives = Lives({"a": a, "b": b}, turn)
    assert lives.meet("a", "b") is together
    assert lives.meet("b", "a") is together


def test_the_next_tile_is_loaded_behind_what_this_one_ends_with() -> None:
    # 4 layers: x is loaded for the first, y made by it, z by the third, and stored behind the last.
    x, y = loaded("x", 640, 0), held("y", 640, 0, 2)
    z = held("z", 640, 2, 3)
    roomy = placed([x, y, z], 4, 3 * 640, "z")
    assert not share(roomy, x, z)
    # x is free for y's successor if only the first layer counts; so it was placed before.
    assert not Lives(ahead([x, y, z], 4).steps).meet("x", "z")
    tight = placed([x, y, z], 4, 2 * 640, "z")
    assert share(tight, x, z) and not share(tight, x, y) and not share(tight, y, z)


def test_first_loads_avoid_what_the_group_before_uses_where_they_can() -> None:
    """The group before uses the lower half of the memory: the upper has no room for both loads."""
    local = machine(local={"size": 8 * 640, "banks": 1, "bank_width": GRAIN})
    before = Sketch([old := held("old", 4 * 640, 0, 0)], looped=True), {"old": (0, 4 * 640)}
    w, x = loaded("w", 4 * 640, 0), loaded("x", 3 * 640, 0)
    places = PlaceBuffers().apply(Sketch([w, x], looped=True), local, before) | before[1]
    assert share(places, old, x) and not share(places, old, w)


def test_what_stays_from_tile_to_tile_needs_no_more_than_its_place() -> None:
    steps = turning([held("w", 64, 1, 1, lasting=True), loaded("x", 64, 1)], 3, ["w"], 2).steps
    assert steps == {"w": (1, 3), "x": (0, 2)}


def test_no_life_is_longer_than_a_turn() -> None:
    made, stored = loaded("x", 64, 0), held("y", 64, 0, 2)
    for layers in (3, 1):
        for first, last in turning([made, stored], 3, ["x", "y"], layers).steps.values():
            assert last - first < 3


# Loads ahead: constants find room long before their layer, and the work does not wait for them.


def meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether two spans have something in common."""
    return a[0] < b[1] and b[0] < a[1]


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
    assert not meet(buffers[0].span(places["x"]), buffers[2].span(places["w"]))
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
        low, high = a.span(places[a.name])
        assert low % GRAIN == 0 and low >= 0 and high <= size
        assert lives[a.name][0] <= a.first + 1 and lives[a.name][1] == a.last + 1
        if lives[a.name][0] == 0:
            assert low >= 128
        for b in buffers[:number]:
            apart = not meet((low, high), b.span(places[b.name]))
            assert apart or not meet((a.first, a.last + 1), (b.first, b.last + 1))
