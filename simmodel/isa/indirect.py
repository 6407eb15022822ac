"""Indirect copies: transfers of rows that a list of numbers in memory names.

    copy.gather     dst[i] = src[index[i]]         the source's rows lie anywhere in a table
    copy.scatter    dst[index[i]] = src[i]         the target's do; its other rows stay as they are

The engine fetches the list itself, as far as it is told, and makes requests of every row, so short
rows wait for the memory's latency where a long transfer streams. What it touches is known at run
time only: to whoever orders instructions it reads, or changes, the whole table. A number below 0
counts from the end; one that names no row stops the program.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from simmodel.arch import Arch
from simmodel.errors import NoSuchRow
from simmodel.isa.base import Array, Flow, View, access_latency, granule
from simmodel.isa.contract import Breaches, distinct, typed
from simmodel.isa.copy import Copy, engine_of, joint_runs, link_latency, unreachable
from simmodel.region import Operand, walk

INDICES = ("int32", "int64")
"""Element types of the numbers of rows."""


def rows_below(operand: Operand, leading: int) -> Operand:
    """One row of `operand`: without its `leading` dimensions."""
    return replace(operand, shape=operand.shape[leading:], strides=operand.strides[leading:])


@dataclass(frozen=True, kw_only=True)
class Indirect(Copy):
    """A copy of rows between a table, along whose first dimension the numbers count, and a box
    that has the dimensions of the index in their place."""

    BULK_OPERANDS: ClassVar[bool] = False

    index: Operand

    @property
    @abstractmethod
    def table(self) -> Operand:
        """The operand of which some rows are touched."""

    @property
    @abstractmethod
    def box(self) -> Operand:
        """The operand at the other end."""

    @property
    def rows(self) -> int:
        """Rows that are copied."""
        return self.index.elements

    @property
    def row(self) -> Operand:
        """Any one row of the table."""
        return rows_below(self.table, 1)

    @property
    def moved(self) -> int:
        return self.rows * self.row.distinct

    @property
    def filled(self) -> int:
        return self.moved

    def startup(self, arch: Arch) -> int:
        own = engine_of(self, arch).startup.cycles(arch.clock)
        links = link_latency(arch, self.src.memory, self.dst.memory)
        first = access_latency(arch, (self.index,))
        return own + first + access_latency(arch, (self.src, self.dst)) + links

    def cycles(self, arch: Arch) -> int:
        engine, row = engine_of(self, arch), self.row
        rate = engine.bandwidth.at(arch.clock)
        each = joint_runs(row, rows_below(self.box, len(self.index.shape)))
        requests = row.distinct // row.run * math.ceil(row.run / engine.request)
        waits = requests * access_latency(arch, (self.src, self.dst)) / engine.outstanding
        handled = max(each, engine.indirect or 0.0, waits)
        return math.ceil(max(self.moved / rate, self.rows * handled))

    def traffic(self, arch: Arch) -> tuple[Flow, ...]:
        table, box = self.table, self.box
        far = self.rows * self.row.traffic(granule(arch, table.memory))
        near = box.traffic(granule(arch, box.memory))
        index = self.index.traffic(granule(arch, self.index.memory))
        return (
            Flow(table, table is self.dst, far), Flow(box, box is self.dst, near),
            Flow(self.index, False, index),
        )  # fmt: skip

    def contract(self) -> Breaches:
        table, box, index = self.table, self.box, self.index
        yield from typed("src", self.src, self.dst.dtype)
        yield from typed("index", index, *INDICES)
        # Places to begin at may lie closer to each other than a row is long.
        yield from distinct(self.dst if self.box is self.dst else self.row)
        wanted = (*index.shape, *table.shape[1:])
        if self.before:
            yield "parameter", f"border of {self.before}, expected none"
        if not table.shape:
            yield "shape", "the table has no dimension that the index counts along"
        elif box.shape != wanted:
            ends = f"rows of {table.shape} by an index of {index.shape}"
            yield "shape", f"{ends} fill {box.shape}, expected {wanted}"

    def numbers(self, view: View) -> Array:
        """The index, checked: rows from the end are below 0.

        Raises:
            NoSuchRow: one of them names no row of the table.
        """
        found, extent = view(self.index), self.table.shape[0]
        wrong = (found < -extent) | (found >= extent)
        if wrong.any():
            raise NoSuchRow(int(found[wrong].flat[0]), extent)
        return found

    def unencodable(self, arch: Arch) -> str | None:
        engine = engine_of(self, arch)
        if engine.indirect is None:
            return f"{self.engine} takes no list of rows"
        if not arch.isa.has(self.form):
            return f"{arch.name} has no {self.form}"
        if self.src.memory not in engine.from_ or self.dst.memory not in engine.to:
            return f"{self.engine} has no path {self.src.memory} -> {self.dst.memory}"
        if self.index.memory not in (*engine.from_, *engine.to):
            return f"{self.engine} reads no list of rows in {self.index.memory}"
        if self.dimensions > engine.rank:
            return f"{self.engine} walks {engine.rank} dimensions"
        remote = bool(self.src.cores or self.dst.cores)
        return unreachable(self.engine, engine, self.dst, remote)

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
    """dst[i] = src[index[i]]; rows of a table, each wherever the index says."""

    MNEMONIC: ClassVar[str] = "copy.gather"

    @property
    def table(self) -> Operand:
        return self.src

    @property
    def box(self) -> Operand:
        return self.dst

    def reads(self) -> tuple[Operand, ...]:
        return (self.src, self.index)

    def execute(self, view: View) -> None:
        view(self.dst)[...] = np.take(view(self.src), self.numbers(view), axis=0)


@dataclass(frozen=True, kw_only=True)
class Scatter(Indirect):
    """dst[index[i]] = src[i]; the table's other rows stay, of equal numbers the last counts."""

    MNEMONIC: ClassVar[str] = "copy.scatter"

    @property
    def table(self) -> Operand:
        return self.dst

    @property
    def box(self) -> Operand:
        return self.src

    def reads(self) -> tuple[Operand, ...]:
        return (self.src, self.index, self.dst)

    def execute(self, view: View) -> None:
        view(self.dst)[self.numbers(view)] = view(self.src)
