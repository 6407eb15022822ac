"""Expansion: the order, turns and addresses of occurrences are those of walking the loops."""

from __future__ import annotations

from typing import Any

from handmade import at
from hypothesis import given, settings
from hypothesis import strategies as st

from simmodel.isa import Copy, Item, Loop, Sync
from simmodel.isa.region import Address, Ring
from simmodel.program.expand import addresses, expand

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
