"""Copy family: strided transfers in up to four dimensions, with borders filled on the way.

A copy moves raw bytes; where the target's elements are of a wider type that holds every number of
the source's, the engine widens them on the way. Several `cores` on the target make it a broadcast.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from simmodel.arch.dtype import Array
from simmodel.arch.element_types import widened
from simmodel.arch.record import Arch, CopyEngine
from simmodel.errors import NoSuchRow
from simmodel.isa.base import (
    ConstantFill,
    Instruction,
    OperandTraffic,
    View,
    access_latency,
    granule,
    operand_traffic,
)
from simmodel.isa.operand_rules import Breaches, distinct, storable, typed
from simmodel.isa.region import Operand, walk


def engine_of(instruction: Instruction, arch: Arch) -> CopyEngine:
    """The copy engine of `instruction`; ValueError if there is none of its name."""
    engine = arch.copy_.get(instruction.engine)
    if engine is None:
        raise ValueError(f"{arch.name} has no copy engine {instruction.engine!r}")
    return engine


def link_latency(arch: Arch, source: str, target: str) -> int:
    """Cycles of latency of the buses between two memory roles; that of other links depends on
    where the ends are."""
    crossed = (k for k in arch.links.values() if source in k.from_ and target in k.to)
    return sum(k.latency.cycles(arch.clock) for k in crossed if k.topology == "bus")


def unreachable(name: str, engine: CopyEngine, dst: Operand, remote: bool) -> str | None:
    """Why engine `name` does not reach the cores of an operand, or None if it does."""
    if len(dst.cores) > 1:
        return None if engine.broadcast else f"{name} cannot broadcast"
    if remote and not (engine.peer or engine.broadcast):
        return f"{name} does not reach other cores"
    return None


def joint_runs(src: Operand, dst: Operand) -> int:
    """Pieces of a transfer that are contiguous at both ends.

    A copy engine handles at most one piece per cycle, so transposing element by element is slow.
    """
    extents = walk((dst, src))
    items = src.unit, dst.unit
    moving = [(s, d) for s, d, n in zip(src.strides, dst.strides, dst.shape, strict=True) if n > 1]
    contiguous = not moving or items in moving
    return math.prod(extents[:-1]) if contiguous else math.prod(extents)


def _requests(operand: Operand, engine: CopyEngine) -> int:
    """Requests for `operand` where each of its contiguous runs takes requests of its own."""
    return operand.runs * math.ceil(operand.run / engine.request)


def least_cycles(engine: CopyEngine, requests: Any, clock: float) -> Any:
    """Cycles that a transfer of so many requests takes at least, whatever its bytes; for each
    number of them where they are an array."""
    return np.maximum(engine.minimum.at(clock), requests * engine.per_request.at(clock))


@dataclass(frozen=True, kw_only=True)
class Copy(Instruction):
    """dst[before : before + src.shape] = src; the rest of dst = fill.

    Raw values of narrower elements become the same numbers in wider ones.
    """

    MNEMONIC: ClassVar[str] = "copy"
    UNIT: ClassVar[str] = "copy"

    dst: Operand
    src: Operand
    before: tuple[int, ...] = ()
    """Border elements in front, per dimension; empty: none anywhere."""
    fill: float = 0.0
    """Raw value of the border."""

    @property
    def source_bytes(self) -> int:
        """Bytes that leave the source, each once."""
        return self.src.distinct

    @property
    def dimensions(self) -> int:
        """Dimensions that the engine walks."""
        return len(walk((self.dst, self.src)))

    @property
    def bordered(self) -> bool:
        """Whether there is a border to fill."""
        return self.src.shape != self.dst.shape

    def startup(self, arch: Arch) -> int:
        own = engine_of(self, arch).startup.cycles(arch.clock)
        links = link_latency(arch, self.src.memory, self.dst.memory)
        return own + access_latency(arch, (self.src, self.dst)) + links

    def cycles(self, arch: Arch) -> int:
        engine, ends = engine_of(self, arch), (self.src, self.dst)
        size, each = max(end.distinct for end in ends), float(engine.request)
        if not engine.joins_runs:
            far = max(ends, key=lambda end: access_latency(arch, (end,)))
            each = size / _requests(far, engine)
        least: float = least_cycles(engine, size / each, arch.clock)
        rate, latency = engine.bandwidth.at(arch.clock), access_latency(arch, ends)
        if latency:
            rate = min(rate, engine.outstanding * each / latency)
        return math.ceil(max(size / rate, joint_runs(self.src, self.dst), least))

    def contract(self) -> Breaches:
        inner, outer = self.src.shape, self.dst.shape
        if self.dst.dtype not in widened(self.src.dtype):
            yield from typed("src", self.src, self.dst.dtype)
        yield from distinct(self.dst)
        before = self.before or (0,) * len(inner)
        if len({len(inner), len(outer), len(before)}) > 1:
            yield "shape", f"src {inner}, dst {outer} and before {before}, expected one rank"
        elif any(b < 0 or b + n > m for b, n, m in zip(before, inner, outer, strict=True)):
            yield "shape", f"src {inner} behind a border of {before} leaves dst {outer}"
        if inner != outer:
            yield from storable("fill", self.fill, self.dst.dtype)

    def execute(self, view: View) -> None:
        source, target = view(self.src), view(self.dst)
        if source.shape == target.shape:
            target[...] = source
            return
        before = self.before or (0,) * len(self.src.shape)
        skip = target.ndim - len(before)
        extents = self.src.shape[skip:]
        inner = tuple(slice(b, b + n) for b, n in zip(before, extents, strict=True))
        target[...] = np.asarray(self.fill).astype(target.dtype)
        target[(slice(None),) * skip + inner] = source

    def unencodable(self, arch: Arch) -> str | None:
        engine = engine_of(self, arch)
        if self.src.memory not in engine.from_ or self.dst.memory not in engine.to:
            return f"{self.engine} has no path {self.src.memory} -> {self.dst.memory}"
        if self.dimensions > engine.rank:
            return f"{self.engine} walks {engine.rank} dimensions"
        if self.bordered and not engine.pad:
            return f"{self.engine} cannot fill borders"
        if self.src.dtype != self.dst.dtype and self.src.dtype not in engine.widens:
            return f"{self.engine} does not widen {self.src.dtype}"
        remote = bool(self.src.cores or self.dst.cores)
        return unreachable(self.engine, engine, self.dst, remote)


@dataclass(frozen=True, kw_only=True)
class Fill(ConstantFill):
    """dst = value, on a copy engine."""

    MNEMONIC: ClassVar[str] = "copy.fill"
    UNIT: ClassVar[str] = "copy"

    def startup(self, arch: Arch) -> int:
        return engine_of(self, arch).startup.cycles(arch.clock) + access_latency(arch, (self.dst,))

    def cycles(self, arch: Arch) -> int:
        return math.ceil(self.dst.distinct / engine_of(self, arch).bandwidth.at(arch.clock))

    def unencodable(self, arch: Arch) -> str | None:
        engine = engine_of(self, arch)
        if self.dst.memory not in engine.to:
            return f"{self.engine} has no path to {self.dst.memory}"
        if len(self.dst.collapsed) > engine.rank:
            return f"{self.engine} walks {engine.rank} dimensions"
        return unreachable(self.engine, engine, self.dst, bool(self.dst.cores))


# Indirect copies: transfers of rows that a list of numbers in memory names.

INDICES = ("int32", "int64")
"""Element types of row numbers."""


def rows_below(operand: Operand, leading: int) -> Operand:
    """One row of `operand`: without its `leading` dimensions."""
    return replace(operand, shape=operand.shape[leading:], strides=operand.strides[leading:])


@dataclass(frozen=True, kw_only=True)
class Indirect(Copy):
    """A copy of rows between a table, whose first dimension the index selects from, and a box with
    the index's dimensions in its place."""

    BULK_OPERANDS: ClassVar[bool] = False

    index: Operand

    @property
    @abstractmethod
    def table(self) -> Operand:
        """The operand of which single rows are touched."""

    @property
    def box(self) -> Operand:
        """The operand at the other end, with the index's dimensions in front."""
        return self.dst if self.table is self.src else self.src

    @property
    def row(self) -> Operand:
        """Any one row of the table."""
        return rows_below(self.table, 1)

    @property
    def source_bytes(self) -> int:
        return self.index.elements * self.row.distinct

    def startup(self, arch: Arch) -> int:
        return super().startup(arch) + access_latency(arch, (self.index,))

    def cycles(self, arch: Arch) -> int:
        engine, row = engine_of(self, arch), self.row
        rate = engine.bandwidth.at(arch.clock)
        each = joint_runs(row, rows_below(self.box, len(self.index.shape)))
        requests, rows = _requests(row, engine), self.index.elements
        waits = requests * access_latency(arch, (self.src, self.dst)) / engine.outstanding
        handled = max(each, engine.indirect or 0.0, waits)
        least: float = least_cycles(engine, rows * requests, arch.clock)
        return math.ceil(max(self.source_bytes / rate, rows * handled, least))

    def traffic(self, arch: Arch) -> tuple[OperandTraffic, ...]:
        rows, row = self.index.elements, self.row
        far = rows * row.traffic(granule(arch, self.table.memory))
        return (
            OperandTraffic(self.table, self.table is self.dst, far, rows * row.runs),
            operand_traffic(arch, self.box, write=self.box is self.dst),
            operand_traffic(arch, self.index),
        )

    def contract(self) -> Breaches:
        table, box, index = self.table, self.box, self.index
        yield from typed("src", self.src, self.dst.dtype)
        yield from typed("index", index, *INDICES)
        # Places to begin at may lie closer to each other than a row is long.
        yield from distinct(box if box is self.dst else self.row)
        wanted = (*index.shape, *table.shape[1:])
        if self.before:
            yield "parameter", f"border of {self.before}, expected none"
        if not table.shape:
            yield "shape", "the table has no dimension that the index counts along"
        elif box.shape != wanted:
            ends = f"rows of {table.shape} by an index of {index.shape}"
            yield "shape", f"{ends} fill {box.shape}, expected {wanted}"

    def numbers(self, view: View) -> Array:
        """The index, whose negative numbers count from the end; raises NoSuchRow where one of them
        names no row of the table."""
        found, extent = view(self.index), self.table.shape[0]
        wrong = (found < -extent) | (found >= extent)
        if wrong.any():
            raise NoSuchRow(int(found[wrong].flat[0]), extent)
        return found

    def unencodable(self, arch: Arch) -> str | None:
        engine = engine_of(self, arch)
        if engine.indirect is None:
            return f"{self.engine} takes no list of rows"
        if self.index.memory not in (*engine.from_, *engine.to):
            return f"{self.engine} reads no list of rows in {self.index.memory}"
        return super().unencodable(arch)

    @property
    def bordered(self) -> bool:
        return False

    @property
    def dimensions(self) -> int:
        """Dimensions that the engine walks: of the list, and of each row."""
        counted = len(self.index.shape)
        ahead = replace(
            self.box, shape=self.box.shape[:counted], strides=self.box.strides[:counted]
        )
        along = walk((ahead, self.index)) if counted else (1,)
        inside = walk((rows_below(self.box, counted), self.row)) if self.row.shape else (1,)
        return max(1, sum(n > 1 for n in along)) + sum(n > 1 for n in inside)


@dataclass(frozen=True, kw_only=True)
class Gather(Indirect):
    """dst[i] = src[index[i]]; gathers rows of a table."""

    MNEMONIC: ClassVar[str] = "copy.gather"

    @property
    def table(self) -> Operand:
        return self.src

    def execute(self, view: View) -> None:
        view(self.dst)[...] = np.take(view(self.src), self.numbers(view), axis=0)


@dataclass(frozen=True, kw_only=True)
class Scatter(Indirect):
    """dst[index[i]] = src[i]; scatters rows into a table, whose other rows stay.

    Of equal numbers the last counts.
    """

    MNEMONIC: ClassVar[str] = "copy.scatter"

    @property
    def table(self) -> Operand:
        return self.dst

    def reads(self) -> tuple[Operand, ...]:
        return (self.src, self.index, self.dst)

    def execute(self, view: View) -> None:
        view(self.dst)[self.numbers(view)] = view(self.src)
