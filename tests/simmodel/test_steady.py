"""Equal iterations once: what is skipped is exact, and what the machine's state is made of."""

from __future__ import annotations

import dataclasses
import gc
import random
import weakref
from collections import deque
from typing import Any

import numpy as np
import pytest
from programs import box, gemm, load, machine, memories, nop, program, relu, store

from simmodel.arch.record import Arch
from simmodel.errors import Deadlock
from simmodel.isa import Arrive, Await, Instruction, Item, Loop, Sync
from simmodel.isa.region import Address, Operand, Ring
from simmodel.machine.build import Machine
from simmodel.machine.engine import Profile
from simmodel.machine.flow import Alarm
from simmodel.machine.front_end import Pace
from simmodel.machine.memory import Links, MemoryInstances, Ports
from simmodel.machine.run import cycles_of, simulate
from simmodel.machine.steady import PARTS, Look, state
from simmodel.program.expand import expand, turns_around
from simmodel.program.program import Program
from simmodel.program.substitute import map_operands
from simmodel.trace import Trace

KIB = 1024


def plain(trace: Trace) -> dict[str, Any]:
    """All that is told of a run but how much of it was simulated."""
    told = {f.name: getattr(trace, f.name) for f in dataclasses.fields(trace)}
    del told["simulated"]
    told["site_counts"] = [counts.tobytes() for counts in trace.site_counts]
    spans = told.pop("spans")
    if spans is not None:
        columns = {f.name: getattr(spans, f.name) for f in dataclasses.fields(spans)}
        columns |= columns.pop("moved")
        told["spans"] = {name: (v.dtype, v.tobytes()) for name, v in columns.items()}
    return told


def both(program: Program, arch: Arch) -> tuple[Trace, Trace]:
    """The run with skipping, which has to tell what the run without does, and that."""
    skipped, whole = (simulate(program, arch, trace=True, skip=skip) for skip in (True, False))
    assert plain(skipped) == plain(whole)
    whole = simulate(program, arch, skip=False)
    assert plain(simulate(program, arch)) == plain(whole)
    assert cycles_of(program, arch) == whole.cycles
    assert whole.simulated == sum(counts.sum() for counts in whole.site_counts)
    return skipped, whole


# Random programs. Tokens are given and taken so that no order deadlocks; where a dice makes one
# that does, both runs have to say the same.


def on_ring(operand: Operand, variables: list[str], dice: random.Random) -> Operand:
    """The operand in slots of a ring, or moving with the loops, or in one place."""
    kind, size = dice.randrange(4), operand.bytes
    address = operand.address
    if kind == 0 and variables:
        turn = ((dice.choice(variables), 1),)
        address = Address(address.base, (), Ring(dice.choice((2, 3)), size, 0, turn))
    elif kind < 3:
        terms = tuple((name, dice.choice((0, size, 64, 96))) for name in variables)
        address = Address(address.base, terms)
    return dataclasses.replace(operand, address=address)


def random_instruction(dice: random.Random, variables: list[str]) -> Instruction:
    size = dice.choice((16, 40, 64, 160))
    at = dice.choice((0, 0, 4 * KIB, 32 * KIB))
    made = dice.choice((
        lambda: nop(dice.randrange(0, 8)),
        lambda: relu(size, at=at, to=dice.choice((at, 16 * KIB))),
        lambda: load(size, at=at), lambda: load(size, at=at), lambda: store(size, at=at),
        lambda: gemm(4, 4, 8, at=at), lambda: Sync(engine=dice.choice(("matrix", "load"))),
    ))()  # fmt: skip
    changes = {
        name: on_ring(getattr(made, name), variables, dice)
        for name in ("src", "dst", "a")
        if getattr(made, name, None) is not None
    }
    return dataclasses.replace(made, **changes)


def random_items(
    dice: random.Random, depth: int, variables: list[str], cores: int
) -> tuple[Item, ...]:
    items: list[Item] = []
    for number in range(dice.randrange(1, 5)):
        if depth and dice.random() < 0.5:
            name = f"v{depth}{number}{len(variables)}"
            body = random_items(dice, depth - 1, [*variables, name], cores)
            count = dice.choice((2, 3, 7, 20, 50)) if depth > 1 else dice.choice((3, 9, 40, 90))
            items.append(Loop(name, count, body))
            continue
        made = random_instruction(dice, variables)
        token = dice.choice(("a", "b", "c"))
        if dice.random() < 0.4:
            made = dataclasses.replace(made, waits=((token, 1),), signals=((token, 1),))
        elif dice.random() < 0.2:
            # A pair: the second waits for the first, which can run ahead by the tokens there are.
            items.append(dataclasses.replace(made, waits=(("d", 1),), signals=(("e", 1),)))
            made = random_instruction(dice, variables)
            made = dataclasses.replace(made, waits=(("e", 1),), signals=(("d", 1),))
        elif dice.random() < 0.15 and cores > 1:
            made = dataclasses.replace(made, notifies=(("n", 1, tuple(range(cores))),))
        items.append(made)
    return tuple(items)


TOKENS = {"a": 1, "b": 2, "c": 3, "d": 2, "e": 0, "n": 0}


def random_program(dice: random.Random, cores: int) -> Program:
    alike = dice.random() < 0.5
    streams = []
    for _ in range(cores):
        if not streams or not alike:
            stream = random_items(dice, dice.choice((1, 2, 2, 3)), [], cores)
        streams.append((*stream, nop(1)))
    if cores > 1 and dice.random() < 0.5:
        meet: tuple[Item, ...] = (
            Arrive(engine="scalar", barrier="m"), Await(engine="load", barrier="m"),
        )  # fmt: skip
        streams = [(*one, *meet, *one) for one in streams]
    return program(*streams, tokens=TOKENS, barriers={"m": cores})


def random_machine(dice: random.Random, cores: int) -> Arch:
    front_end = {
        "issue_width": dice.choice((1, 2, 3)),
        "queue_depth": dice.choice((1, 2, 4, 8)),
        "fetch_bandwidth": dice.choice((None, None, "5 B/cycle", "40 B/cycle")),
        "sync": dice.choice(("tokens", "interlock")),
        "signal": f"{dice.choice((0, 3))} cycles",
    }
    if front_end["fetch_bandwidth"] is not None:
        front_end["loop_buffer"] = dice.choice((16, 64, 400))
    local = {
        "banks": dice.choice((2, 4)), "bank_width": dice.choice((4, 16)),
        "mapping": dice.choice(("interleaved", "blocked")),
        "conflict_penalty": dice.choice((0.0, 0.3)),
    }  # fmt: skip
    dram = {
        "bandwidth": dice.choice(("16 B/cycle", "7 B/cycle", "1024 B/cycle")),
        "write_efficiency": dice.choice((1.0, 0.7)), "run_cost": f"{dice.choice((0, 2))} cycles",
        "conflict_penalty": dice.choice((0.0, 0.4)), "channels": dice.choice((1, 3)),
    }  # fmt: skip
    vector = {"startup": f"{dice.choice((0, 0, 3))} cycles"}
    links: dict[str, Any] = {}
    if dice.random() < 0.4:
        links["noc"] = {
            "topology": "ring", "from": ["dram", "local"], "to": ["dram", "local"],
            "bandwidth": f"{dice.choice((3, 8, 64))} B/cycle", "latency": "2 cycles",
            "ports": sorted({0, cores - 1}), "duplex": dice.random() < 0.5,
        }  # fmt: skip
    return machine(
        cores=cores, memories=memories(dram=dram, local=local), front_end=front_end,
        vector=vector, links=links,
    )  # fmt: skip


def said(program: Program, arch: Arch, skip: bool) -> Any:
    try:
        return plain(simulate(program, arch, trace=True, skip=skip))
    except Deadlock as error:
        return str(error)


@pytest.mark.parametrize("seed", range(50))
def test_skipping_changes_nothing(seed: int) -> None:
    dice = random.Random(seed)
    cores = dice.choice((1, 1, 2, 3))
    made, arch = random_program(dice, cores), random_machine(dice, cores)
    while sum(len(stream.order) for stream in made.expanded) > 3000:
        made = random_program(dice, cores)
    assert said(made, arch, True) == said(made, arch, False)


# Equal groups: the same at other addresses in DRAM, with barriers of their own.


def grouped(
    bodies: list[tuple[Item, ...]], groups: int, behind: int, engines: tuple[str, str],
    odd: int = -1, tokens: dict[str, int] = TOKENS,
) -> Program:  # fmt: skip
    """So many groups of what each core does, each of which waits for one before it; one of them has
    an instruction more."""
    giver, taker = engines

    def moved(item: Item, by: int) -> Item:
        def far(operand: Operand) -> Operand:
            if operand.memory != "dram":
                return operand
            return dataclasses.replace(operand, address=operand.address.plus(by))

        return map_operands(item, far)

    streams = []
    for body in bodies:
        items: list[Item] = []
        for group in range(groups):
            if group >= behind:
                items.append(Await(engine=taker, barrier=f"g{group - behind}"))
            items += [moved(item, 256 * group) for item in body]
            items += [nop(7)] if group == odd else []
            items.append(Arrive(engine=giver, barrier=f"g{group}"))
        streams.append((*items, nop(1)))
    barriers = {f"g{group}": len(bodies) for group in range(groups)}
    return program(*streams, tokens=tokens, barriers=barriers)


@pytest.mark.parametrize("seed", range(60))
def test_skipping_equal_groups_changes_nothing(seed: int) -> None:
    dice = random.Random(1000 + seed)
    cores = dice.choice((1, 1, 2, 3))
    arch = random_machine(dice, cores)
    engines = tuple(dice.sample(("load", "vector", "store", "matrix"), 2))
    while True:
        bodies = [random_items(dice, dice.choice((0, 1, 1, 2)), [], cores) for _ in range(cores)]
        bodies = [bodies[0]] * cores if dice.random() < 0.5 else bodies
        groups, odd = dice.choice((4, 9, 20)), dice.choice((-1, -1, 2, 7))
        made = grouped(bodies, groups, dice.choice((1, 1, 2)), (engines[0], engines[1]), odd)
        if sum(len(stream.order) for stream in made.expanded) < 3000:
            break
    assert said(made, arch, True) == said(made, arch, False)


def test_forty_equal_groups_are_a_few() -> None:
    body = (load(64), nop(9), relu(64), store(64))
    made = grouped([body, body], 40, 1, ("store", "load"))
    skipped, whole = both(made, machine(cores=2))
    assert whole.simulated == 2 * (40 * 6)
    few = skipped.simulated
    assert few < whole.simulated / 3
    # One that is another is simulated, and so is what comes until all is as before.
    skipped, whole = both(grouped([body, body], 40, 1, ("store", "load"), 20), machine(cores=2))
    assert whole.simulated == 2 * (40 * 6) + 2
    assert few < skipped.simulated < whole.simulated / 2


def of_engine(trace: Trace, name: str) -> np.ndarray:
    """Starts on one engine, in order of time."""
    assert trace.spans is not None
    return trace.spans.start[trace.spans.engine == trace.engine_names.index(name)]


def test_a_thousand_iterations_are_a_few() -> None:
    # The scalar unit is the slowest, so one iteration follows another every three cycles; a load
    # is issued one cycle behind its nop, which takes the slot that the fourth before it has left.
    stream = (Loop("i", 1000, (nop(3), load(32, origin=1))), nop(5))
    skipped, _ = both(program(stream), machine())
    assert skipped.cycles == 3005
    assert skipped.simulated < 60
    assert of_engine(skipped, "scalar").tolist() == [3 * i for i in range(1001)]
    assert np.diff(of_engine(skipped, "load"))[20:].tolist() == [3] * 979
    assert skipped.idle("no_work", "load") == 3005 - (of_engine(skipped, "load")[-1] + 2)
    assert skipped.traffic["dram.read"] == 32_000
    # The scalar unit works until 3000, so a turn of the loop takes three cycles, for both of it.
    assert [(o.turns, o.turn_cycles) for o in skipped.origins] == [(1000, 3.0), (1000, 3.0)]
    alone = simulate(program((nop(3),)), machine())
    assert [(o.turns, o.turn_cycles) for o in alone.origins] == [(1, None)]  # of no loop


def test_a_machine_goes_when_it_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = list[weakref.ref[Machine]]()

    class Noted(Machine):
        def __init__(self, arch: Arch, trace: bool, begin: int) -> None:
            super().__init__(arch, trace, begin)
            machines.append(weakref.ref(self))

    monkeypatch.setattr("simmodel.machine.run.Machine", Noted)
    gc.disable()  # it is not looked for
    try:
        simulate(program((Loop("i", 1000, (nop(3), load(32))),)), machine())
        assert [made() for made in machines] == [None]
    finally:
        gc.enable()


def test_what_follows_a_loop_waits_for_as_long_as_it_did() -> None:
    # The store waits for a token through all iterations, the vector unit for its first entry.
    stream = (
        store(16, waits=(("go", 1),)),
        Loop("i", 500, (nop(3), load(32))),
        nop(1, signals=(("go", 1),)),
        relu(16, at=8 * KIB, to=8 * KIB),
    )
    skipped, _ = both(program(stream, tokens={"go": 0}), machine(front_end={"issue_width": 4}))
    assert skipped.simulated < 60
    assert of_engine(skipped, "store").tolist() == [1501]
    assert of_engine(skipped, "vector")[0] > 1480


def test_a_loop_that_drifts_is_simulated() -> None:
    """Each iteration leaves a token more."""
    stream = (Loop("i", 200, (nop(3, signals=(("a", 1),)), load(32))),)
    skipped, whole = both(program(stream, tokens={"a": 0}), machine())
    assert skipped.simulated == whole.simulated == 400


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_a_ring_makes_the_period_longer(slots: int) -> None:
    """The load of an iteration waits for whoever still reads the slot that it fills."""
    ring = Address(0, (), Ring(slots, 64, 0, (("i", 1),)))
    fill = load(64)
    fill = dataclasses.replace(fill, dst=dataclasses.replace(fill.dst, address=ring))
    use = relu(64, at=0, to=8 * KIB)
    use = dataclasses.replace(use, a=dataclasses.replace(use.a, address=ring))
    arch = machine(front_end={"sync": "interlock"}, vector={"startup": "5 cycles"})
    skipped, _ = both(program((Loop("i", 403, (fill, use)),)), arch)
    assert skipped.simulated < 150


@pytest.mark.parametrize("step", [64, 4096])
def test_what_comes_upon_other_bytes_in_the_end_is_not_skipped(step: int) -> None:
    """Late iterations meet bytes that the first one's neighbour writes all the time."""
    moving = relu(64, at=0, to=48 * KIB, terms=(("i", step),))
    moving = dataclasses.replace(moving, dst=box("local", 48 * KIB, 64))
    still = load(64, at=8 * KIB)
    arch = machine(front_end={"sync": "interlock"})
    skipped, _ = both(program((Loop("i", 12 * KIB // step * 4, (still, moving)),)), arch)
    assert skipped.simulated < 12 * KIB // step * 8 or step == 4096


@pytest.mark.parametrize("count", range(90, 98))
def test_a_loop_ends_inside_a_period(count: int) -> None:
    body = (nop(3), load(16), load(48))
    stream = (Loop("i", count, (*body, nop(2))), *body, Loop("j", count, body))
    skipped, whole = both(program(stream), machine(front_end={"queue_depth": 3}))
    assert skipped.simulated < whole.simulated / 3


def test_loops_in_loops_are_skipped_at_each_depth() -> None:
    inner = Loop("j", 12, (load(32), nop(3)))
    stream = (Loop("i", 50, (inner, relu(64), Loop("k", 9, (nop(2), store(16))))),)
    skipped, whole = both(program(stream), machine())
    assert whole.simulated == 50 * (24 + 1 + 18)
    assert skipped.simulated < whole.simulated / 8


def test_several_cores_are_skipped_together() -> None:
    """Two that share the bandwidth of DRAM in different loops, and one that does something else."""
    one = (Loop("i", 300, (load(64), nop(4))),)
    two = (nop(7), Loop("i", 250, (load(32), nop(2), nop(1))))
    skipped, whole = both(program(one, two, (nop(50),)), machine(cores=3))
    assert skipped.simulated < whole.simulated / 3


def walked(items: tuple[Item, ...]) -> list[tuple[tuple[str, int], ...]]:
    """Of each occurrence the loops around it and their iterations."""
    found: list[tuple[tuple[str, int], ...]] = []
    for item in items:
        if isinstance(item, Loop):
            inner = walked(item.body)
            found += [((item.variable, n), *own) for n in range(item.count) for own in inner]
        else:
            found.append(())
    return found


@pytest.mark.parametrize("seed", range(20))
def test_positions_lie_in_their_loops(seed: int) -> None:
    dice = random.Random(seed)
    items = random_items(dice, 3, [], 1)
    expansion = expand(items)
    if any(site.times > 1 for site in expansion.sites):
        return  # bursts count as one
    for position, expected in enumerate(walked(items)):
        turns, following = turns_around(expansion.loops, position)
        assert tuple((loop.variable, n) for loop, _, n in turns) == expected
        assert following > position


# What the state is made of.


FIXED = {Machine, Profile, Pace, Ports, MemoryInstances, Links, Alarm}
"""Kinds of parts that never change while a machine runs; an alarm is an event of SimPy's."""
RARE = {("Burst", "begun"), ("Burst", "late"), ("Burst", "pitch")}
"""Looked at while a front end issues the rest of a burst that has started: the host's, shared."""


def attributes(part: Any) -> set[str]:
    names = {n for kind in type(part).__mro__ for n in getattr(kind, "__slots__", ())}
    return names | set(getattr(part, "__dict__", ()))


def parts(machine: Machine) -> list[Any]:
    """Every part of a machine, as far as they hold one another."""
    known: dict[int, Any] = {}
    todo: list[Any] = [machine]
    while todo:
        each = todo.pop()
        if id(each) in known:
            continue
        if isinstance(each, dict):
            todo += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | deque):
            todo += each
        elif type(each).__module__.startswith("simmodel.machine") and not callable(each):
            known[id(each)] = each
            todo += [getattr(each, name) for name in attributes(each) if hasattr(each, name)]
    return list(known.values())


def contended() -> Machine:
    """Two cores in the middle of everything: bursts, tokens, an interlock, crowded DRAM."""
    body: tuple[Item, ...] = (
        load(64, waits=(("a", 1),)), relu(64, at=0, to=4096, signals=(("a", 1),)),
        Loop("j", 6, (nop(2),)), store(48, at=4096, signals=(("c", 1),)),
        gemm(4, 4, 8, at=4096, waits=(("c", 1),), notifies=(("b", 1, (0, 1)),)),
    )  # fmt: skip
    loop, meet = Loop("i", 30, body), Await(engine="store", barrier="m")
    first = (Arrive(engine="load", barrier="m"), meet, loop)
    other = (nop(20), Arrive(engine="scalar", barrier="m"), meet, loop)
    arch = machine(
        cores=2, memories=memories(local={"conflict_penalty": 0.5}),
        front_end={"sync": "interlock", "queue_depth": 2, "signal": "3 cycles"},
        vector={"startup": "2 cycles"},
    )  # fmt: skip
    made = Machine(arch)
    made.connect(program(first, other, tokens={"a": 2, "b": 0, "c": 0}, barriers={"m": 2}))
    for front_end in made.front_ends:
        front_end.advance()
    for engine in made.all_engines:
        engine.attend()
    return made


def test_every_attribute_is_in_the_state_or_said_not_to_be() -> None:
    made = contended()
    kinds: dict[type, set[str]] = {}
    for _ in range(120):
        made.env.step()
        for part in parts(made):
            kinds.setdefault(type(part), set()).update(attributes(part))
    kinds = {kind: names for kind, names in kinds.items() if kind not in FIXED}
    assert {kind.__name__ for kind in kinds} >= {"Engine", "Burst", "Hazards", "Resource", "Flow"}
    for kind, names in kinds.items():
        state_of, apart = (set(text.split()) for text in PARTS[kind])
        assert not state_of & apart
        assert names == state_of | apart, kind.__name__


def changed(value: Any) -> Any:
    """Another value in the place of `value`, which is not None."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, tuple):
        return value[:-1]
    if isinstance(value, list | deque | dict):
        other = value.copy()
        if other:
            other.popitem() if isinstance(other, dict) else other.pop()
        return other
    return None


def test_the_state_tells_each_of_its_attributes_apart() -> None:
    made = contended()
    missing = {(k, n) for k, (names, _) in PARTS.items() for n in names.split()}
    for _ in range(200):
        made.env.step()
        before = state(made)
        for part in parts(made):
            for name in PARTS.get(type(part), ("", ""))[0].split():
                value = getattr(part, name)
                if (type(part), name) not in missing or value is None:
                    continue
                setattr(part, name, changed(value))
                try:
                    told = state(made) != before
                except (AssertionError, AttributeError, LookupError, TypeError, ValueError):
                    told = True  # no state at all
                if told:
                    missing.discard((type(part), name))
                setattr(part, name, value)
    assert {(kind.__name__, name) for kind, name in missing} <= RARE


def test_a_stale_look_is_not_taken_for_a_repetition() -> None:
    """Times in the past are as long ago in both, or untouched in both."""
    made = contended()
    for _ in range(50):
        made.env.step()
    *_, past = state(made)
    look = Look(made.env.now, past, [], [], [], 0)
    later = dataclasses.replace(look, cycle=look.cycle + 10)
    assert look.repeated(later)
    moved = [(value + 10 * unit, unit) for value, unit in past]
    assert look.repeated(dataclasses.replace(later, past=moved))
    assert not look.repeated(dataclasses.replace(later, past=[(moved[0][0] + 1, 1), *past[1:]]))
