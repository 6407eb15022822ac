"""What may stay on chip between groups, on small networks by hand: a tensor has 10 bytes."""

from __future__ import annotations

from doubles import Moved
from layers import network
from machines import machine

from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency.activations import (
    KeepTensors,
    KeptBuffer,
    candidates,
)
from compiler.schedule.residency.table import Part, ResidencyTable
from compiler.schedule_ir.group import Group
from compiler.tensor_ir.nest import NestGraph

ARCH = machine(local={"size": 1024, "alignment": 1})
CHAIN = ("a = x", "b = a", "c = b a", "y = c")


def apart(*lines: str) -> tuple[tuple[Part, ...], NestGraph]:
    """Every layer a group of its own."""
    parts, graph = network(*lines)
    return Unfused().apply(parts, graph, Moved(ARCH)), graph


def found(*lines: str) -> dict[str, KeptBuffer]:
    return {each.name: each for each in candidates(*apart(*lines), Moved(ARCH))}


def test_candidates_are_what_later_groups_alone_read() -> None:
    a, b, c = found(*CHAIN).values()
    assert [(each.first, each.last, each.groups) for each in (a, b, c)] == [
        (0, 2, {0, 1, 2}), (1, 2, {1, 2}), (2, 3, {2, 3}),
    ]  # fmt: skip
    # Its store and two loads, for two groups; a store and a load, for one.
    assert (a.saved, a.worth, b.saved, b.worth) == (30, 1.5, 20, 2.0)


def test_what_saves_most_for_its_place_comes_first_as_far_as_the_share_reaches() -> None:
    parts, graph = apart(*CHAIN)
    # Places of 64 bytes from the end on; b and c lie there one after the other, in group 2 both.
    everything = KeepTensors(share=0.75).apply(parts, graph, Moved(ARCH))
    assert [_kept(part) for part in everything] == [
        {"a": 832}, {"a": 832, "b": 960}, {"a": 832, "b": 960, "c": 896}, {"c": 896},
    ]  # fmt: skip
    little = KeepTensors(share=0.125).apply(parts, graph, Moved(ARCH))
    assert [_kept(part) for part in little] == [{}, {"b": 960}, {"b": 960, "c": 896}, {"c": 896}]
    none = KeepTensors(enabled=False).apply(parts, graph, Moved(ARCH))
    assert none == parts


def _kept(part: Part) -> dict[str, int]:
    assert isinstance(part, Group)
    lowest = min((kept.address for kept in part.residents.values()), default=1024)
    assert part.room("local", 1024) == lowest
    return {name: kept.address for name, kept in part.residents.items()}


def test_a_place_by_hand_is_taken() -> None:
    parts, graph = apart(*CHAIN)
    table = ResidencyTable(list(parts), Moved(ARCH))
    a, b, _ = candidates(parts, graph, table.prices)
    for candidate, address in ((a, 0), (b, None)):
        (place,) = candidate.places(table, 1024, address)
        table.commit(place)
    assert not [*b.places(table, 1024, 0)]
    assert [_kept(part) for part in table.parts[:3]] == [
        {"a": 0},
        {"a": 0, "b": 960},
        {"a": 0, "b": 960},
    ]
