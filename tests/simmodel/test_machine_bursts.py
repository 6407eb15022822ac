"""Bursts against the same instructions one by one, and what all traces have in common."""

from __future__ import annotations

import dataclasses
import random

import pytest
from programs import KIB, load, machine, memories, nop, program, relu, store

from simmodel.arch.record import Arch
from simmodel.isa import Instruction, Item, Loop
from simmodel.machine.run import simulate
from simmodel.trace import CAUSES

TOKENS = {"a": 2, "b": 1}


def unrolled(stream: tuple[Item, ...]) -> tuple[Item, ...]:
    """The stream with its loops written out; timing does not look at the addresses here."""
    flat: list[Item] = []
    for item in stream:
        flat += list(item.body) * item.count if isinstance(item, Loop) else [item]
    return tuple(flat)


def random_instruction(dice: random.Random, loop: bool) -> Instruction:
    size = dice.choice((16, 40, 64, 160))
    terms = (("i", 256),) if loop else ()
    kind = dice.randrange(4)
    if kind == 0:
        return nop(dice.randrange(1, 8))
    if kind == 1:
        return relu(size, at=0, to=32 * KIB, terms=terms)
    copy = (load if kind == 2 else store)(size)
    if not loop:
        return copy
    moved = {
        name: dataclasses.replace(
            operand, address=dataclasses.replace(operand.address, terms=(("i", 256),))
        )
        for name, operand in (("src", copy.src), ("dst", copy.dst))
    }
    return dataclasses.replace(copy, **moved)


def random_stream(dice: random.Random, length: int = 25) -> tuple[Item, ...]:
    items: list[Item] = []
    for _ in range(length):
        if dice.random() < 0.4:
            count = dice.choice((2, 3, 5, 9, 40))
            items.append(Loop("i", count, (random_instruction(dice, True),)))
            continue
        token = dice.choice(("a", "b", None))
        instruction = random_instruction(dice, False)
        if token is not None:
            instruction = dataclasses.replace(instruction, signals=((token, 1),))
        elif dice.random() < 0.5:
            # Given and taken in the same place of the stream, so that no order deadlocks.
            instruction = dataclasses.replace(
                instruction, waits=(("a", 1),), signals=(("a", 1), ("b", 1))
            )
        items.append(instruction)
    return tuple(items)


def random_machine(dice: random.Random, contended: bool) -> Arch:
    dram = {"bandwidth": "16 B/cycle" if contended else "1024 B/cycle"}
    local = {"banks": 2 if contended else 256, "bank_width": dice.choice((4, 16))}
    front_end = {
        "issue_width": dice.choice((1, 2, 3)),
        "queue_depth": dice.choice((1, 2, 4, 8)),
        "fetch_bandwidth": dice.choice((None, "5 B/cycle", "3 B/cycle", "40 B/cycle")),
        "sync": dice.choice(("tokens", "interlock")) if contended else "tokens",
    }
    return machine(
        memories=memories(dram=dram, local=local),
        vector={"startup": f"{dice.choice((0, 0, 3))} cycles"},
        front_end=front_end,
    )


@pytest.mark.parametrize("seed", range(120))
def test_uncontended_burst_is_its_instructions(seed: int) -> None:
    dice = random.Random(seed)
    arch, stream = random_machine(dice, contended=False), random_stream(dice)
    burst = simulate(program(stream, tokens=TOKENS), arch)
    single = simulate(program(unrolled(stream), tokens=TOKENS), arch)
    assert burst.site_counts[0].sum() < single.site_counts[0].sum()
    assert burst.engines == single.engines
    assert burst.traffic == single.traffic


@pytest.mark.parametrize("seed", range(120))
def test_every_cycle_has_one_cause(seed: int) -> None:
    dice = random.Random(1000 + seed)
    arch, stream = random_machine(dice, contended=True), random_stream(dice)
    trace = simulate(program(stream, tokens=TOKENS), arch)
    for engine in trace.engines:
        assert tuple(engine.idle) == CAUSES
        assert all(cycles >= 0 for cycles in engine.idle.values())
        assert engine.busy + sum(engine.idle.values()) == trace.cycles


@pytest.mark.parametrize("seed", range(30))
def test_contention_only_delays(seed: int) -> None:
    dice = random.Random(2000 + seed)
    stream = unrolled(random_stream(dice))
    fast = machine(memories=memories(dram={"bandwidth": "1024 B/cycle"}))
    found = simulate(program(stream, tokens=TOKENS), machine())
    ideal = simulate(program(stream, tokens=TOKENS), fast)
    moved = found.traffic["dram.read"] + found.traffic["dram.write"]
    assert found.cycles >= ideal.cycles
    assert found.cycles >= moved / 16
    assert found.traffic == ideal.traffic


def test_long_bursts_cost_no_events() -> None:
    # A million instructions: an event for each would take many seconds.
    stream = (Loop("i", 1_000_000, (nop(2),)), load(16))
    trace = simulate(program(stream), machine())
    assert trace.cycles == 2_000_000
    assert trace.issued == 1_000_001
