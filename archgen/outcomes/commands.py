"""The commands of a program as a frame: queue, opcode, control words, tile and intervals.

The one idea: a row is what one instruction stands for. With its loops kept that is all turns of
them, otherwise one turn. Which tile it is for the compiler has written into the program
(`simmodel.program.program.TileKind`): tiles that are alike have their commands in one order on each
queue, so the how-manieth command it is tells the tile's number.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from archgen.outcomes.columns import COMMAND_COLUMNS
from archgen.outcomes.frame import Record, grouped, records, typed_frame
from archgen.outcomes.points import Row
from archgen.outcomes.timeline import occurrences_of, spans_of
from archgen.process.files import write_atomically, write_text
from simmodel.arch.record import Arch
from simmodel.isa import HOST, Claim, Instruction
from simmodel.isa.region import Operand
from simmodel.program.assembly import print_fields, print_operand
from simmodel.program.assembly_reader import APART
from simmodel.program.encoding import EncodingError, control_words
from simmodel.program.expand import Site, addresses, numbered
from simmodel.program.program import Origin, Program, TileKind
from simmodel.program.substitute import operands_of
from simmodel.trace import Trace
from simmodel.verify.happens_before import Timeline, timeline
from simmodel.verify.overlap import accesses

# What one command says: its control words by name, and how loops around it change them.


def control_fields(command: Instruction, addresses: Mapping[str, int] | None = None) -> Any:
    """Field -> value, as JSON holds it; of operands a mapping as well.

    `addresses`: of operands by their field, in one turn of the loops; default: in the first.
    """
    known = addresses or {}
    values = {field.name: getattr(command, field.name) for field in fields(command)}
    return {n: _json_value(v, known.get(n)) for n, v in values.items() if n not in APART}


def address_steps(command: Instruction) -> dict[str, Any]:
    """Operand -> bytes that each loop around it adds to its address with every turn, by the loop's
    name; `ring` has what turns between slots."""
    found = {}
    for name, operand in operands_of(command).items():
        ring, moves = operand.address.ring, dict[str, Any](operand.address.terms)
        if ring is not None:
            moves["ring"] = {
                "slots": ring.slots, "pitch": ring.pitch, "offset": ring.offset,
                "terms": dict(ring.terms),
            }  # fmt: skip
        if moves:
            found[name] = moves
    return found


def _json_value(value: Any, address: int | None) -> Any:
    if isinstance(value, Operand):
        return _operand_json(value, address)
    if isinstance(value, tuple):
        return [_json_value(each, None) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    return value


def _operand_json(operand: Operand, address: int | None) -> dict[str, Any]:
    ring = operand.address.ring
    first = operand.address.base + (ring.pitch * (ring.offset % ring.slots) if ring else 0)
    more = {
        "scale": operand.scale,
        "zero": operand.zero or None,
        "cores": list(operand.cores) or None,
        "limits": print_operand(operand).rpartition("?")[2] if operand.limits else None,
    }
    return {
        "memory": operand.memory,
        "address": first if address is None else address,
        "shape": list(operand.shape),
        "strides": list(operand.strides),
        "dtype": operand.dtype,
        **{name: value for name, value in more.items() if value is not None},
    }


# Who made what a command reads: the last one that wrote any of its bytes, in one run.

Ints = NDArray[np.int64]


@dataclass
class _LastWriters:
    """Who wrote the bytes of one memory last; -1: nobody."""

    starts: list[int] = field(default_factory=lambda: [0])
    owners: list[int] = field(default_factory=lambda: [-1])

    def paint(self, low: int, high: int, owner: int) -> None:
        if low == high:
            return
        first = bisect_left(self.starts, low)
        last = bisect_right(self.starts, high)
        behind = self.owners[last - 1]
        self.starts[first:last] = [low, high]
        self.owners[first:last] = [owner, behind]

    def owners_in(self, low: int, high: int) -> set[int]:
        """Whose bytes low .. high are."""
        first, last = bisect_right(self.starts, low) - 1, bisect_left(self.starts, high)
        return {owner for owner in self.owners[first:last] if owner >= 0}


def last_writers(line: Timeline, arch: Arch, start: Ints, end: Ints) -> Ints:
    """For each occurrence, the one whose write of what it reads ended last; -1: it reads nothing
    that was written in the run. `start` and `end` are those of each occurrence, in cycles."""
    table = accesses(line, arch)
    memories = [_LastWriters() for _ in table.places]
    found, ends = np.full(len(line.site), -1, np.int64), [*end.tolist(), -1]
    time = np.where(table.write, end[table.occurrence], start[table.occurrence])
    claims = np.array([isinstance(site.instruction, Claim) for site in line.sites], np.bool_)
    order = np.lexsort((table.occurrence, ~table.write, time))  # ends before starts
    for access in order[~claims[line.site[table.occurrence[order]]]].tolist():
        one, region = int(table.occurrence[access]), int(table.region[access])
        memory = memories[int(table.place[region])]
        span = int(table.start[region]), int(table.end[region])
        if table.write[access]:
            memory.paint(*span, one)
        else:
            made = {int(found[one]), *memory.owners_in(*span)}
            found[one] = max(made, key=lambda owner: (ends[owner], owner))
    return found


_Alike = tuple[tuple[int, str], int, str]
"""Queue, kind of tile, opcode: what commands have in common whose order tells their tiles."""


class TooManyCommands(ValueError):
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
        TooManyCommands: the loops stand for more than `limit` commands.
    """
    listing = _Listing(program, arch, trace, whole or program)
    if expand and listing.issued > limit:
        said = f"{program.name} has {listing.issued:,} commands, more than the limit of {limit:,}"
        raise TooManyCommands(f"{said}: keep the loops, or give a higher limit")
    return typed_frame(list(listing.turns() if expand else listing.sites()), COMMAND_COLUMNS)


@dataclass(frozen=True)
class _Run:
    """By occurrence: cycles, and who made what it reads (-1: nobody)."""

    start: Ints
    end: Ints
    producer: Ints
    interval: Ints
    """Cycles since that ended; -1 where there is nobody."""


class _Listing:
    def __init__(
        self, program: Program, arch: Arch | None, trace: Trace | None, whole: Program
    ) -> None:
        self.program = program
        self.line = timeline(program)
        self.times = np.array([site.times for site in self.line.sites], np.int64)
        self.run = None if arch is None or trace is None else self._ran(arch, trace)
        self.packed = _site_control_words(program, arch)
        self.position = self._positions()
        self.number = self._tile_numbers()
        self.shorter = self._shorter(whole)

    @property
    def issued(self) -> int:
        """Commands, loops not kept."""
        return int(self.times[self.line.site].sum())

    def _ran(self, arch: Arch, trace: Trace) -> _Run:
        spans, count = spans_of(trace), len(self.line.site)
        where = occurrences_of(self.line, spans)
        start, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
        start[where], end[where] = spans.start, spans.end
        made = last_writers(self.line, arch, start, end)
        return _Run(start, end, made, np.where(made >= 0, start - end[made], -1))

    def _positions(self) -> Ints:
        """Place of each occurrence's first command in its queue."""
        found = np.zeros(len(self.line.site), np.int64)
        for members in self.line.members:
            times = self.times[self.line.site[members]]
            found[members] = np.cumsum(times) - times
        return found

    def _tile_numbers(self) -> Ints:
        """Of each occurrence, the place of its tile among those that are alike."""
        kinds = _alike(self.line)
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        group = np.array([numbers[kind] for kind in kinds], np.int64)[self.line.site]
        known = self.program.tiles
        many = np.array([
            math.prod(n for _, _, n, _, _ in known[tile].loops) if 0 <= tile < len(known) else 1
            for _, tile, _ in numbers
        ], np.int64)  # fmt: skip
        found: Ints = numbered(group) * many[group] // np.bincount(group)[group]
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
                **self._command_row(site, first),
                "times": len(found) * site.times,
                "loops": " ".join(f"{name}*{count}" for name, count in loops) or None,
                "words": _json(control_fields(site.instruction)),
                "steps": _json(address_steps(site.instruction)),
                **self._timed(first, found, lambda one: int(self.line.site[one])),
            }

    def turns(self) -> Iterator[Row]:
        """A row for each command."""
        rows = np.cumsum(self.times[self.line.site]) - self.times[self.line.site]
        known: dict[int, list[tuple[str, Ints]]] = {}
        for one, site_number in enumerate(self.line.site.tolist()):
            site = self.line.sites[site_number]
            if site_number not in known:
                loops = (*site.loops, *site.repeats)
                known[site_number] = [
                    (name, addresses(operand.address, loops))
                    for name, operand in operands_of(site.instruction).items()
                ]
            told = self._command_row(site, one)
            timed = self._timed(one, np.array([one]), lambda other: int(rows[other]))
            for turn in range(site.times):
                at = int(self.line.turn[one]) * site.times + turn
                words = {name: int(found[at]) for name, found in known[site_number]}
                yield {
                    **told, "position": int(self.position[one]) + turn, "times": 1,
                    "words": _json(control_fields(site.instruction, words)), **timed,
                }  # fmt: skip

    def _command_row(self, site: Site, one: int) -> Row:
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
            **self._tile_columns(command, int(self.number[one]), (core, engine)),
            "opcode": command.MNEMONIC,
            "form": command.form,
            "control": print_fields(command).strip(),
            "packed": self.packed[int(self.line.site[one])] if self.packed else None,
            "waits": _json(dict(command.waits)),
            "signals": _json(dict(command.signals)),
            "notifies": _json([list(each) for each in command.notifies]),
        }

    def _tile_columns(self, command: Instruction, number: int, queue: tuple[int, str]) -> Row:
        if not 0 <= command.tile < len(self.program.tiles):
            return {}
        tile: TileKind = self.program.tiles[command.tile]
        told = (queue, command.tile, command.MNEMONIC) not in self.shorter
        turns = np.unravel_index(number, [count for _, _, count, _, _ in tile.loops])
        numbers = [
            first + int(turn) for (_, first, *_), turn in zip(tile.loops, turns, strict=True)
        ]
        return {
            "layer": _origin(self.program, tile.layer).node,
            "tile": ".".join(map(str, numbers)) if told else None,
            "tiles": ".".join(str(total) for _, _, _, total, _ in tile.loops),
            "kind": tile.phase,
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


def _alike(line: Timeline) -> list[_Alike]:
    commands = zip(line.owners, (site.instruction for site in line.sites), strict=True)
    return [((core, each.engine), each.tile, each.MNEMONIC) for core, each in commands]


def _counted(line: Timeline) -> Counter[_Alike]:
    kinds = _alike(line)
    return Counter(kinds[site] for site in line.site.tolist())


def _site_control_words(program: Program, arch: Arch | None) -> list[str]:
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


def _json(value: object) -> str | None:
    return json.dumps(value) if value else None


# The commands of a program as text, by layer and tile: what a hardware team reads first.


def commands_text(frame: pd.DataFrame) -> str:
    """The rows of `archgen.commands`, layer by layer and tile by tile.

    Behind `+` stand the cycles from the end of who made what a command reads to its start, as far
    as the frame has them.
    """
    lines: list[str] = []
    for (core, layer, group), tiles in _by(records(frame), "core", "layer", "group"):
        name = f"layer {layer!r}" if layer else "no layer"
        lines.append(f"{'host' if core == -1 else f'core {core}'}, {name}, group {group}")
        for key, rows in _by(tiles, "tile", "tiles", "kind", "sizes", "kinds"):
            lines += [f"  {_tile_line(*key)}"] if layer else []
            lines += (f"    {_command(row)}" for row in rows)
    return "\n".join(lines) + "\n" if lines else ""


def save_commands(frame: pd.DataFrame, path: Path) -> None:
    """`frame` as the file `path`: .csv, .parquet, or text. Raises OSError."""
    if path.suffix == ".csv":
        write_atomically(path, lambda target: frame.to_csv(target, index_label="row"))
    elif path.suffix == ".parquet":
        write_atomically(path, lambda target: frame.to_parquet(target))
    else:
        write_text(path, commands_text(frame))


def _by(rows: list[Record], *names: str) -> Iterable[tuple[tuple[Any, ...], list[Record]]]:
    """Rows with the same values, in order of appearance; what is missing is empty."""
    return grouped(
        rows, lambda row: tuple("" if pd.isna(row[name]) else row[name] for name in names)
    ).items()


def _tile_line(tile: str, tiles: str, kind: str, sizes: str, kinds: str) -> str:
    if not tiles:
        return f"whole layer, {sizes}"
    which = f"tile {tile}" if tile else "a tile"  # of a shorter program, nobody knows which
    return f"{which} of {tiles}, {kinds if '.' in tiles else kind}, {sizes}"


def _command(row: Record) -> str:
    parts = [f"{row['engine']:<8} #{row['position']:<6} {row['opcode']} {row['control']}".rstrip()]
    for word, column in (
        ("for ", "loops"), ("wait ", "waits"), ("signal ", "signals"), ("notify ", "notifies"),
        ("at ", "start_cycle"), ("+", "interval_cycles"),
    ):  # fmt: skip
        parts += [] if pd.isna(row[column]) else [f"{word}{row[column]}"]
    return "  ".join(parts)
