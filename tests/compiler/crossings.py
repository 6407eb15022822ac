"""Mutants of what cores say to each other, and a second opinion about each that is accepted.

Every mutant keeps counts in balance, so that only what it does to the order can give it away:

    unsaid     a token between two cores is neither given nor taken any more
    early      an instruction's word to other cores is given by the one before it on its engine
    late       a wait for another core's word is done by the next instruction on its engine
    unclaimed  the interlock is not told what another core writes
    unmet      an engine goes on without waiting at a barrier
    hurried    an engine arrives at a barrier before what it did last

The second opinion looks at bytes, one by one, and shares nothing with the verifier's geometry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from compiler.codegen.nodes import instructions
from simmodel.arch.record import Arch
from simmodel.isa import Arrive, Await, Claim, Instruction, Item, Loop, Sync
from simmodel.isa.region import Operand
from simmodel.program.program import Place, Program, places
from simmodel.verify.happens_before import Clocks, Timeline, sequence, timeline
from simmodel.verify.overlap import legal_edges

Path = tuple[int, ...]
Word = tuple[int, str]
"""Core and name of a token."""
Edit = Callable[[tuple[Item, ...], int], tuple[Item, ...] | None]
"""Changes a list of items around a place in it; None: cannot."""
Numbers = NDArray[np.int64]
SPACE = 1 << 17
"""Bytes of every memory that programs touch at most."""


def mutants(program: Program) -> Iterator[tuple[str, Program]]:
    """Every mutant of `program`, with its kind."""
    words = words_between(program)
    for word in sorted(words):
        yield "unsaid", _without(program, word)
    edits: dict[str, Edit] = {
        "early": _early, "unclaimed": _unclaimed, "unmet": _unmet, "hurried": _hurried,
    }  # fmt: skip
    for core, stream in enumerate(program.cores):
        heard = frozenset(name for owner, name in words if owner == core)
        own = edits | {"late": lambda items, at, heard=heard: _late(items, at, heard)}
        for path in _paths(stream):
            for kind, edit in own.items():
                changed = _edited(stream, path, edit)
                if changed is not None:
                    streams = list(program.cores)
                    streams[core] = changed
                    yield kind, replace(program, cores=tuple(streams))


def words_between(program: Program) -> set[Word]:
    """Tokens that one core gives and another takes."""
    found = set()
    for core, stream in enumerate(program.cores):
        for item in instructions(stream):
            for name, _, cores in item.notifies:
                found |= {(other, name) for other in cores if other != core}
    return found


def _paths(items: tuple[Item, ...], path: Path = ()) -> Iterator[Path]:
    for at, item in enumerate(items):
        if isinstance(item, Loop):
            yield from _paths(item.body, (*path, at))
        else:
            yield (*path, at)


def _edited(items: tuple[Item, ...], path: Path, edit: Edit) -> tuple[Item, ...] | None:
    at, *deeper = path
    if not deeper:
        return edit(items, at)
    loop = items[at]
    assert isinstance(loop, Loop)
    body = _edited(loop.body, tuple(deeper), edit)
    return None if body is None else (*items[:at], replace(loop, body=body), *items[at + 1 :])


def _without(program: Program, word: Word) -> Program:
    streams = enumerate(program.cores)
    return replace(program, cores=tuple(_silent(stream, core, word) for core, stream in streams))


def _silent(items: tuple[Item, ...], core: int, word: Word) -> tuple[Item, ...]:
    """The stream of `core` without giving or taking `word`."""
    found: list[Item] = []
    for item in items:
        if isinstance(item, Loop):
            found.append(replace(item, body=_silent(item.body, core, word)))
            continue
        waits = tuple(wait for wait in item.waits if (core, wait[0]) != word)
        told = (
            (name, count, tuple(other for other in cores if (other, name) != word))
            for name, count, cores in item.notifies
        )
        notices = tuple(notice for notice in told if notice[2])
        found.append(replace(item, waits=waits, notifies=notices))
    return tuple(found)


def _neighbour(items: tuple[Item, ...], at: int, step: int) -> int | None:
    """The nearest instruction of the same engine in the same list, if no loop lies between."""
    here, there = items[at], at + step
    assert isinstance(here, Instruction)
    while 0 <= there < len(items):
        other = items[there]
        if isinstance(other, Loop):
            return None
        if other.engine == here.engine:
            return there
        there += step
    return None


def _put(items: tuple[Item, ...], new: dict[int, Item]) -> tuple[Item, ...]:
    return tuple(new.get(at, item) for at, item in enumerate(items))


def _early(items: tuple[Item, ...], at: int) -> tuple[Item, ...] | None:
    item, there = items[at], _neighbour(items, at, -1)
    assert isinstance(item, Instruction)
    if there is None or not item.notifies:
        return None
    other = items[there]
    assert isinstance(other, Instruction)
    if {n for n, _, _ in other.notifies} & {n for n, _, _ in item.notifies}:
        return None
    told = replace(other, notifies=(*other.notifies, *item.notifies))
    return _put(items, {at: replace(item, notifies=()), there: told})


def _late(items: tuple[Item, ...], at: int, heard: frozenset[str]) -> tuple[Item, ...] | None:
    item, there = items[at], _neighbour(items, at, 1)
    assert isinstance(item, Instruction)
    moved = tuple(wait for wait in item.waits if wait[0] in heard)
    if there is None or not moved:
        return None
    other = items[there]
    assert isinstance(other, Instruction)
    if {name for name, _ in other.waits} & {name for name, _ in moved}:
        return None
    kept = tuple(wait for wait in item.waits if wait not in moved)
    asked = replace(other, waits=(*moved, *other.waits))
    return _put(items, {at: replace(item, waits=kept), there: asked})


def _plain(item: Instruction) -> Sync:
    """Its synchronization alone."""
    return Sync(**{field.name: getattr(item, field.name) for field in fields(Sync)})


def _unclaimed(items: tuple[Item, ...], at: int) -> tuple[Item, ...] | None:
    item = items[at]
    return _put(items, {at: _plain(item)}) if isinstance(item, Claim) else None


def _unmet(items: tuple[Item, ...], at: int) -> tuple[Item, ...] | None:
    item = items[at]
    return _put(items, {at: _plain(item)}) if isinstance(item, Await) else None


def _hurried(items: tuple[Item, ...], at: int) -> tuple[Item, ...] | None:
    item = items[at]
    there = _neighbour(items, at, -1) if isinstance(item, Arrive) else None
    return None if there is None else _put(items, {at: items[there], there: item})


def racing(program: Program, arch: Arch) -> list[str]:
    """Occurrences that touch a byte that one of another queue touches, one of them writing, in no
    order; found byte by byte."""
    line = timeline(program)
    edges = legal_edges(line, arch)
    order = sequence(line, edges)
    clocks = Clocks(line, edges, order)
    latest: dict[tuple[Place, bool], dict[int, Numbers]] = {}
    found = []
    for occurrence in order.tolist():
        queue = int(line.queue[occurrence])
        for write, place, where in _touched(line, occurrence, arch):
            rivals = [latest.get((place, True), {})]
            rivals += [latest.get((place, False), {})] if write else []
            others = ((q, last) for rival in rivals for q, last in rival.items() if q != queue)
            for other, last in others:
                if last[where].max(initial=-1) >= int(clocks.ended(occurrence, other)):
                    found.append(f"{line.where(occurrence)} and {line.queues[other]} at {place}")
            own = latest.setdefault((place, write), {})
            own.setdefault(queue, np.full(SPACE, -1, np.int64))[where] = line.position[occurrence]
    return found


def _touched(line: Timeline, occurrence: int, arch: Arch) -> Iterator[tuple[bool, Place, Numbers]]:
    """What an occurrence reads and writes: whether it writes, the memory, and which bytes."""
    number = int(line.site[occurrence])
    site, core = line.sites[number], line.owners[number]
    if isinstance(site.instruction, Claim):
        return  # it moves nothing
    reads = len(site.wide.reads())
    for index, (operand, starts) in enumerate(zip(site.operands, site.addresses, strict=True)):
        where = _offsets(operand) + int(starts[line.turn[occurrence]])
        for place in places(arch, operand, core):
            yield index >= reads, place, where


def _offsets(operand: Operand) -> Numbers:
    """Every byte of an operand, from its address on."""
    total = np.arange(operand.itemsize, dtype=np.int64)
    for extent, stride in zip(operand.shape, operand.strides, strict=True):
        total = (np.arange(extent, dtype=np.int64)[:, None] * stride + total).ravel()
    return total
