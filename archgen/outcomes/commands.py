"""The commands of a program as a frame: queue, opcode, control words, tile and intervals.

The one idea: a row is what one instruction stands for. With its loops kept that is all turns of
them, otherwise one turn. Which tile it is for the compiler has written into the program
(`simmodel.program.TileKind`): tiles that are alike have their commands in one order on each queue,
so the how-manieth command it is tells the tile's number.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from archgen.outcomes.columns import COMMAND_COLUMNS
from archgen.outcomes.command_words import named_words, steps
from archgen.outcomes.frame import typed_frame
from archgen.outcomes.point import Row
from archgen.outcomes.producers import producers
from archgen.outcomes.timeline import spans_of
from simmodel.arch import Arch
from simmodel.asm import print_fields
from simmodel.encoding import EncodingError, control_words
from simmodel.expand import Site, addresses
from simmodel.isa import HOST, Instruction
from simmodel.order import Timeline, timeline
from simmodel.program import Origin, Program, TileKind
from simmodel.region import Operand
from simmodel.trace import Trace

Ints = NDArray[np.int64]
_Alike = tuple[tuple[int, str], int, str]
"""Queue, kind of tile, opcode."""


class TooMany(ValueError):
    """More commands than were asked for."""


def commands_frame(
    program: Program, arch: Arch | None = None, trace: Trace | None = None,
    expand: bool = False, limit: int = 100_000, whole: Program | None = None,
) -> pd.DataFrame:  # fmt: skip
    """One row for each command; columns are `COMMAND_COLUMNS`, the index is that of `producer`.

    Args:
        program: whose commands.
        arch, trace: the machine, and the run on it with its spans; None: times stay missing.
        expand: whether each turn of each loop is a row.
        limit: most rows of these.
        whole: what `program` was made of for lengths of its own; None: it was not.

    Raises:
        TooMany: the loops stand for more than `limit` commands.
    """
    listing = _Listing(program, arch, trace, whole or program)
    if expand and listing.issued > limit:
        said = f"{program.name} has {listing.issued:,} commands, more than the limit of {limit:,}"
        raise TooMany(f"{said}: keep the loops, or give a higher limit")
    return typed_frame(list(listing.turns() if expand else listing.sites()), COMMAND_COLUMNS)


@dataclass(frozen=True)
class _Run:
    """By occurrence: cycles, and who made what it reads (-1: nobody)."""

    start: Ints
    end: Ints
    producer: Ints

    @cached_property
    def interval(self) -> Ints:
        """Cycles since that ended; -1 where there is nobody."""
        made = self.producer >= 0
        since = self.start - self.end[self.producer]
        return np.where(made, since, -1)


class _Listing:
    """The rows of one program."""

    def __init__(
        self, program: Program, arch: Arch | None, trace: Trace | None, whole: Program
    ) -> None:
        self.program = program
        self.line = timeline(program)
        self.times = np.array([site.times for site in self.line.sites], np.int64)
        self.run = None if arch is None or trace is None else self._ran(arch, trace)
        self.packed = _packed(program, arch)
        self.position = self._positions()
        self.number = self._numbers()
        self.shorter = self._shorter(whole)

    @property
    def issued(self) -> int:
        """Commands, loops not kept."""
        return int(self.times[self.line.site].sum())

    def _ran(self, arch: Arch, trace: Trace) -> _Run:
        """When each occurrence ran."""
        spans, count = spans_of(trace), len(self.line.site)
        bases = np.cumsum([0, *(len(each.sites) for each in self.program.expanded)])
        sites = bases[spans.stream] + spans.site
        order = np.argsort(self.line.site, kind="stable")
        edges = np.searchsorted(self.line.site[order], np.arange(len(self.line.sites) + 1))
        where = order[edges[sites] + spans.occurrence]
        start, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
        start[where], end[where] = spans.start, spans.end
        return _Run(start, end, producers(self.line, arch, start, end))

    def _positions(self) -> Ints:
        """Place of each occurrence's first command in its queue."""
        found = np.zeros(len(self.line.site), np.int64)
        for members in self.line.members:
            times = self.times[self.line.site[members]]
            found[members] = np.cumsum(times) - times
        return found

    def _numbers(self) -> Ints:
        """Of each occurrence, the place of its tile among those that are alike."""
        opcodes: dict[str, int] = {}
        kinds = [
            (site.instruction.tile, opcodes.setdefault(site.instruction.MNEMONIC, len(opcodes)))
            for site in self.line.sites
        ]
        own = np.array(kinds, np.int64).reshape(-1, 2)[self.line.site]
        keys = np.column_stack([self.line.queue, own])
        _, group, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
        group = group.reshape(-1)
        order = np.argsort(group, kind="stable")
        rank = np.empty(len(group), np.int64)
        rank[order] = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
        known = self.program.tiles
        many = np.array([math.prod(n for _, _, n, _, _ in tile.loops) for tile in known] + [1])
        tiles = np.where((own[:, 0] >= 0) & (own[:, 0] < len(known)), own[:, 0], len(known))
        found: Ints = rank * many[tiles] // counts[group]
        return found

    def _shorter(self, whole: Program) -> set[_Alike]:
        """Alike commands of which `whole` has others: those that are left tell no number."""
        if whole is self.program:
            return set()
        most, left = _counted(timeline(whole)), _counted(self.line)
        return {key for key in most.keys() | left.keys() if most[key] != left[key]}

    def sites(self) -> Iterator[Row]:
        """A row for each instruction with its loops."""
        for site, found in zip(self.line.sites, self.line.occurrences, strict=True):
            first = int(found[0])
            loops = (*site.loops, *site.repeats)
            yield {
                **self._told(site, first),
                "times": len(found) * site.times,
                "loops": " ".join(f"{name}*{count}" for name, count in loops) or None,
                "words": _json(named_words(site.instruction)),
                "steps": _json(steps(site.instruction)),
                **self._timed(first, found, lambda one: int(self.line.site[one])),
            }

    def turns(self) -> Iterator[Row]:
        """A row for each command."""
        rows = np.cumsum(self.times[self.line.site]) - self.times[self.line.site]
        known: dict[int, list[tuple[str, Ints]]] = {}
        for one, site_number in enumerate(self.line.site.tolist()):
            site = self.line.sites[site_number]
            if site_number not in known:
                known[site_number] = list(_addresses(site))
            told = self._told(site, one)
            timed = self._timed(one, np.array([one]), lambda other: int(rows[other]))
            for turn in range(site.times):
                at = int(self.line.turn[one]) * site.times + turn
                words = {name: int(found[at]) for name, found in known[site_number]}
                yield {
                    **told, "position": int(self.position[one]) + turn, "times": 1,
                    "words": _json(named_words(site.instruction, words)), **timed,
                }  # fmt: skip

    def _told(self, site: Site, one: int) -> Row:
        """What an occurrence is, and what it is for."""
        core, engine = self.line.queues[self.line.queue[one]]
        command = site.instruction
        origin = _origin(self.program, command.origin)
        return {
            "core": -1 if engine == HOST else core,
            "engine": engine,
            "position": int(self.position[one]),
            "node": origin.node,
            "operator": origin.kind,
            "group": origin.group,
            **self._tile(command, int(self.number[one]), _alike((core, engine), command)),
            "opcode": command.MNEMONIC,
            "form": command.form,
            "control": print_fields(command).strip(),
            "packed": self.packed[int(self.line.site[one])] if self.packed else None,
            "waits": _json(dict(command.waits)),
            "signals": _json(dict(command.signals)),
            "notifies": _json([list(each) for each in command.notifies]),
        }

    def _tile(self, command: Instruction, number: int, alike: _Alike) -> Row:
        if not 0 <= command.tile < len(self.program.tiles):
            return {}
        tile: TileKind = self.program.tiles[command.tile]
        places: list[int] = []
        for _, first, count, _, _ in reversed(tile.loops):
            number, turn = divmod(number, count)
            places.append(first + turn)
        return {
            "layer": _origin(self.program, tile.layer).node,
            "tile": None if alike in self.shorter else ".".join(map(str, reversed(places))),
            "tiles": ".".join(str(total) for _, _, _, total, _ in tile.loops),
            "kind": tile.kind,
            "kinds": ".".join(kind for *_, kind in tile.loops),
            "sizes": "x".join(map(str, tile.sizes)),
        }

    def _timed(self, first: int, found: Ints, row_of: Callable[[int], int]) -> Row:
        """When the first of the occurrences ran, and how long after what it needs; the shortest
        such time of all of them."""
        run = self.run
        if run is None:
            return {}
        made = int(run.producer[first])
        row: Row = {"start_cycle": int(run.start[first]), "end_cycle": int(run.end[first])}
        if made >= 0:
            row |= {"producer": row_of(made), "interval_cycles": int(run.interval[first])}
        known = run.interval[found]
        known = known[known >= 0]
        if len(known):
            row["least_interval_cycles"] = int(known.min())
        return row


def _alike(queue: tuple[int, str], command: Instruction) -> _Alike:
    """What commands have in common whose order tells their tiles."""
    return queue, command.tile, command.MNEMONIC


def _counted(line: Timeline) -> Counter[_Alike]:
    """How often each of them runs."""
    found: Counter[_Alike] = Counter()
    for site, ran in zip(line.sites, line.occurrences, strict=True):
        if len(ran):
            found[_alike(line.queues[line.queue[ran[0]]], site.instruction)] += len(ran)
    return found


def _packed(program: Program, arch: Arch | None) -> list[str]:
    """The control words of each site; none where they are not known."""
    try:
        streams = control_words(program, arch)[0] if arch is not None else []
    except EncodingError:
        return []
    # Sites are the instructions in the order of the stream.
    pairs = (pair for stream in streams for pair in stream)
    return [packed.hex() for command, packed in pairs if isinstance(command, Instruction)]


def _origin(program: Program, index: int) -> Origin:
    return program.origins[index] if index < len(program.origins) else Origin("", 0, "")


def _addresses(site: Site) -> Iterator[tuple[str, Ints]]:
    """Operand -> its address in every turn."""
    loops = (*site.loops, *site.repeats)
    for field in fields(site.instruction):
        value = getattr(site.instruction, field.name)
        if isinstance(value, Operand):
            yield field.name, addresses(value.address, loops)


def _json(value: object) -> str | None:
    """As text; nothing where there is nothing."""
    return json.dumps(value) if value else None
