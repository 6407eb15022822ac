"""What cores say to each other is all needed: any word removed or moved is noticed, or proven idle.

Programs of whole networks on 2 to 8 cores that share loads, pass rows on and meet at barriers; each
mutant is refused by the verifier, or a second opinion finds no two accesses out of order and the
program gives the same bytes in orders that starve one queue after the other. That opinion looks at
bytes, one by one, and shares nothing with the verifier's geometry. Mutants keep counts in balance,
so that only what they do to the order can give them away:

    unsaid     a token between two cores is neither given nor taken any more
    early      an instruction's word to other cores is given by the one before it on its engine
    late       a wait for another core's word is done by the next instruction on its engine
    unclaimed  the interlock is not told what another core writes
    unmet      an engine goes on without waiting at a barrier
    hurried    an engine arrives at a barrier before what it did last
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any

import numpy as np
import onnx
import pytest
from doubles import Clinging
from machines import machine
from networks import Net, feeds_of
from numpy.typing import NDArray

from compiler.api import CompileOptions, compile_model, prepared
from compiler.codegen.nodes import instructions
from compiler.options import Stages
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.isa import Arrive, Await, Claim, Instruction, Item, Loop, Sync
from simmodel.isa.region import Operand
from simmodel.program.program import Place, Program, places
from simmodel.verify import findings
from simmodel.verify.happens_before import Clocks, Timeline, sequence, starving_order, timeline
from simmodel.verify.overlap import legal_edges

EACH = 5
"""Mutants of each kind that are tried of a program."""


def image(quantized: bool, width: int = 8) -> onnx.ModelProto:
    """Two convolutions, whose rows meet at the borders of cores, and a sum over all."""
    net = Net(quantized=quantized)
    x = net.input(1, 16, 16, width)
    for _ in range(2):
        x = net.op("Relu", net.op("Conv", x, net.weight(16, 16, 3, 3), pads=[1, 1, 1, 1]))
    return net.model(net.op("GlobalAveragePool", x))


def tokens(quantized: bool) -> onnx.ModelProto:
    """Two products with the same weights for all rows."""
    net = Net(quantized=quantized)
    x = net.input(1, 32, 32)
    x = net.op("Relu", net.op("MatMul", x, net.weight(32, 64)))
    return net.model(net.op("MatMul", x, net.weight(64, 16)))


ROOM = {"size": 1 << 17}
CASES: dict[str, tuple[Any, Arch, str, CompileOptions]] = {
    "loads, tokens": (image, machine(cores=3, among="load"), "int8", CompileOptions()),
    "loads, interlock": (
        tokens, machine(cores=4, among="load", sync="interlock"), "int8", CompileOptions(),
    ),
    "clusters": (
        tokens, machine(clusters=4, cores=2, among="load", sync="interlock", shared={}), "int8",
        CompileOptions(),
    ),
    "peers, tokens": (
        image, machine(cores=4, among="peer", local=ROOM), "fp32",
        CompileOptions(stages=Stages(keep=Clinging())),
    ),
    "peers, interlock": (
        image, machine(cores=5, among="peer", local=ROOM, sync="interlock"), "fp32",
        CompileOptions(stages=Stages(keep=Clinging())),
    ),
    "nothing but barriers": (
        partial(image, width=16), machine(cores=2, local={"size": 1 << 13}), "fp32",
        CompileOptions(),
    ),
}  # fmt: skip


@cache
def compiled(case: str) -> tuple[Program, Arch, dict[str, Any]]:
    build, arch, dtype, options = CASES[case]
    model = build(dtype == "int8")
    made = compile_model(prepared(model, "net"), arch, replace(options, dtype=dtype))
    return made.program, arch, feeds_of(model)


def verdicts(case: str) -> Counter[tuple[str, bool]]:
    """Kind of mutant and whether it is refused: how many; AssertionError for a wrong one that is
    accepted."""
    program, arch, feeds = compiled(case)
    right = execute(program, feeds, arch)
    of_kind: dict[str, list[Program]] = {}
    for kind, mutant in mutants(program):
        of_kind.setdefault(kind, []).append(mutant)
    found: Counter[tuple[str, bool]] = Counter()
    for kind, made in of_kind.items():
        for mutant in random.Random(case).sample(made, min(EACH, len(made))):
            refused = bool(findings(mutant, arch))
            found[kind, refused] += 1
            if refused:
                continue
            assert not racing(mutant, arch), (case, kind)
            for order in map(starving_order, range(3)):
                got = execute(mutant, feeds, arch, order=order)
                assert all(got[name].tobytes() == right[name].tobytes() for name in right), kind
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_word_between_cores_that_is_removed_or_moved_is_noticed_or_idle(case: str) -> None:
    found = verdicts(case)
    needed = {"unmet", "hurried"} if "nothing" in case else {"unsaid", "early", "late"}
    assert {kind for kind, refused in found if refused} >= needed, found
    claims = found["unclaimed", True] + found["unclaimed", False]
    assert bool(claims) == (CASES[case][1].front_end.sync == "interlock"), found


@pytest.mark.parametrize("case", CASES)
def test_the_second_opinion_agrees_about_what_the_compiler_made(case: str) -> None:
    program, arch, _ = compiled(case)
    assert not findings(program, arch)
    assert not racing(program, arch)
    assert bool(words_between(program)) == ("nothing" not in case)


def test_the_second_opinion_sees_a_race() -> None:
    program, arch, _ = compiled("peers, tokens")
    unsaid = [mutant for kind, mutant in mutants(program) if kind == "unsaid"]
    assert any(racing(mutant, arch) for mutant in unsaid[:3])


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
