"""Lives of buffers: in loops, what is loaded for the next tile finds room while this one ends."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from machines import machine

from compiler.memory.on_chip import Lives, PlaceBuffers, ahead, depths, turning
from compiler.plan.make_plan import Plan
from compiler.schedule.residency.buffer import Places, TileBuffer
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import OuterLoop

GRAIN = 64


def held(name: str, size: int, first: int, last: int, *, lasting: bool = False) -> TileBuffer:
    """What layers work on."""
    return TileBuffer(
        name, "local", "int8", (), (), size, 1, 1, first=first, last=last, lasting=lasting
    )


def loaded(name: str, size: int, layer: int) -> TileBuffer:
    """What one layer of each tile finds in DRAM."""
    return replace(held(name, size, layer, layer), key=(name, None, False))


class Looped(Plan):
    """Buffers of a group of some layers in a loop over tiles."""

    def __init__(
        self, buffers: list[TileBuffer], layers: int, stores: tuple[str, ...] = ()
    ) -> None:
        for name, value in (
            ("buffers", {b.name: b for b in buffers}),
            ("layers", (None,) * layers),
            ("stores", tuple((name, "store") for name in stores)),
            (
                "schedule",
                SimpleNamespace(group=Group((), ()), loops=(OuterLoop(0, 1),)),
            ),
        ):
            object.__setattr__(self, name, value)


def placed(buffers: list[TileBuffer], layers: int, size: int, *stores: str) -> Places:
    local = {"size": size, "banks": 1, "bank_width": GRAIN}
    return PlaceBuffers().apply(Looped(buffers, layers, stores), machine(local=local))


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


def test_what_stays_from_tile_to_tile_needs_no_more_than_its_place() -> None:
    steps = turning([held("w", 64, 1, 1, lasting=True), loaded("x", 64, 1)], 3, ["w"], 2).steps
    assert steps == {"w": (1, 3), "x": (0, 2)}


def test_no_life_is_longer_than_a_turn() -> None:
    made, stored = loaded("x", 64, 0), held("y", 64, 0, 2)
    for layers in depths(3):
        for first, last in turning([made, stored], 3, ["x", "y"], layers).steps.values():
            assert last - first < 3
