"""The table of residency: which tensor lies in which memory on chip, from when to when, and where.

A network passes from group to group what lies in DRAM, but for the rows of this table:

    tensor    memory    address    first .. last part    and by kind: cores or slices, layout

Each kind of tensor (constants, results between groups, buffers in shared memory) says what could
have a row, and how groups change for it. Candidates come in the order of what they save for the
bytes and steps that they take; one gets a row if there is room as long as it lives, and if the
groups around it are expected to be quicker for it. `Group.residency` is the part of the table that
one group sees.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from typing import Protocol

from compiler.cost.overlap import HOST_CALL, StepCycles, in_turn
from compiler.schedule.residency.buffer import GRAIN, LiveRange, lowest
from compiler.schedule_ir.group import Group
from compiler.target.group_facts import Facts
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.nest import HostNode
from simmodel.arch.base import Latest, MemoryRole
from simmodel.arch.record import Arch

Part = Group | HostNode
ROUNDING = 1e-6
"""Share of a sum of prices that roundings may take."""


@dataclass(frozen=True)
class Row:
    """Where a tensor lies, and between which parts of the network."""

    memory: MemoryRole
    address: int
    span: LiveRange


Placement = tuple[Sequence[Row], Mapping[int, Group]]
"""Rows that belong together, and the groups by position that they change."""


@dataclass(frozen=True)
class Slicing:
    """One way in which cores keep a tensor."""

    slices: tuple[Box, ...] = ()
    """By core, the part that it keeps; none: the one core keeps all of it."""
    passed: bool = False
    """Whether cores pass each other what they keep beside their own shares."""
    grid: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """Axes along which shares are cut, each with the number of its parts."""


@dataclass(frozen=True)
class ResidencyCandidate(ABC):
    """A tensor or a buffer that could lie in a memory on chip for several parts of a network."""

    name: str
    memory: MemoryRole
    instances: int
    """Parts of it, of which each lies in another memory."""
    bytes: int
    """In one of these, border included."""
    first: int
    """Position of the first part that makes or reads it."""
    last: int
    saved: int
    """Bytes that need not be moved."""

    @property
    def steps(self) -> int:
        """Parts during which it takes its bytes from others."""
        return 1 + self.last - self.first

    @property
    def worth(self) -> float:
        """Bytes saved for each byte and step that it occupies."""
        return self.saved / (self.bytes * self.instances * self.steps)

    def places(
        self, table: ResidencyTable, limit: int,
        address: int | None = None, slicing: Slicing | None = None,
    ) -> Iterator[Placement]:  # fmt: skip
        """Where it can lie: as is said, and as is quickest where nothing is; see
        `ResidencyTable.free_row`."""
        for each in self.slicings(table) if slicing is None else [slicing]:
            row = table.free_row(self, limit, address, self.sliced_bytes(each))
            if row is not None:
                yield [row], self.groups_beside(row, table, each)

    @abstractmethod
    def groups_beside(self, row: Row, table: ResidencyTable, slicing: Slicing) -> dict[int, Group]:
        """The groups of a table that change if it lies in `row`, by position."""

    def slicings(self, table: ResidencyTable) -> list[Slicing]:
        """How cores can keep it for its readers, as these are now."""
        del table
        return [Slicing()]

    def sliced_bytes(self, slicing: Slicing) -> int:
        """Bytes that it takes of each memory, kept in one way."""
        del slicing
        return self.bytes


class Prices(Protocol):
    """What is asked about groups."""

    arch: Arch
    cores: int
    """That may take part."""
    facts: Facts
    """What is true of groups whatever their tiles."""

    @property
    def staging(self) -> int:
        """Bytes of each shared memory for loads on their way from core to core."""

    def price(self, group: Group) -> float:
        """Expected cycles, or another score to be kept low."""

    def cost_below(self, group: Group, limit: float) -> float:
        """The price if that is below `limit`, else something that is not, which is cheaper."""

    def overlap_ends(self, group: Group) -> tuple[float, float]:
        """Cycles at the start of a group that fits, and at its end, in which it may overlap with
        its neighbours: see `Estimate.lead` and `Estimate.rest`."""

    def lower_bound(self, group: Group) -> float:
        """At most the price, and cheap."""

    def least_added(self, group: Group) -> float:
        """At most what a group adds to whatever is before it, and cheap: nothing that it computes
        is done before the constants are there that it begins with."""

    def outline(self, group: Group) -> tuple[Hashable, Sequence[str]]:
        """What groups have in common that cost the same, and the tensors that it numbers."""


def added(
    parts: Iterable[Part], prices: Prices, rest: float = 0.0, limit: float = math.inf,
    least: Iterable[float] = repeat(0.0),
) -> float:  # fmt: skip
    """Expected cycles of groups one after another, each with what it adds to the one before, in
    whose last `rest` cycles the first may begin; calls of the host count nothing. From `limit` on
    infinity is answered, since a price is the dearest question there is; those behind each part add
    `least` at least."""
    total = 0.0
    for part, behind in zip(parts, least, strict=False):
        step = HOST_CALL
        if isinstance(part, Group):
            most = limit - behind - total + rest
            price = prices.cost_below(part, most)
            if price >= most:
                return math.inf
            step = (price, *prices.overlap_ends(part))
        total, rest = total + sum(in_turn([step], rest)), step[-1]
    return total


Way = tuple[Sequence[Part], Sequence[Part]]
"""The parts of a network without and with what lies on chip between them."""


def cheaper_stretches(one: Way, other: Way, prices: Prices) -> tuple[Part, ...]:
    """Parts without what lies on chip: between places at which both ways have done the same layers,
    those of the way that is expected to be quicker there, as it lies on chip."""
    ways = tuple((parts, _added_by_part(kept, prices)) for parts, kept in (one, other))
    found = list[Part]()
    for spans in _stretches(one[0], other[0]):
        _, best = min((sum(ways[n][1][span]), n) for n, span in enumerate(spans))
        found += ways[best][0][spans[best]]
    return tuple(found)


def _added_by_part(parts: Sequence[Part], prices: Prices) -> list[float]:
    """Expected cycles that each part adds to those before it."""
    steps = list[StepCycles]()
    for part in parts:
        price = prices.price(part) if isinstance(part, Group) else 0.0
        ends = 0.0, 0.0
        if isinstance(part, Group) and not math.isinf(price):
            ends = prices.overlap_ends(part)
        steps.append((price, *ends))
    return list(in_turn(steps))


def _stretches(one: Sequence[Part], other: Sequence[Part]) -> Iterator[tuple[slice, slice]]:
    """The shortest stretches of both at whose ends they have made the same tensors."""
    ways, starts, ends, made = (one, other), [0, 0], [0, 0], [0, 0]
    apart = set[str]()
    while ends != [len(one), len(other)]:
        side = min((n for n in (0, 1) if ends[n] < len(ways[n])), key=lambda n: made[n])
        part = ways[side][ends[side]]
        names = part.outputs if isinstance(part, HostNode) else part.producer_positions
        apart ^= {*names}
        made[side] += len(names)
        ends[side] += 1
        if not apart and made[0] == made[1]:
            yield slice(starts[0], ends[0]), slice(starts[1], ends[1])
            starts = [*ends]


@dataclass
class OptimisticPrices:
    """Prices of groups if what could lie on chip does."""

    real: Prices
    hoped: Callable[[Group], Group]
    """A group with all that could."""
    optional: bool = False
    """Whether it may do without where it does not fit, or slices bar some splits over the cores."""

    def __post_init__(self) -> None:
        self.arch, self.cores, self.facts = self.real.arch, self.real.cores, self.real.facts
        self.staging = self.real.staging
        self.hoped = Latest(self.hoped)

    def price(self, group: Group) -> float:
        return self.cost_below(group, math.inf)

    def cost_below(self, group: Group, limit: float) -> float:
        hoped = self.hoped(group)
        cost = self.real.cost_below(hoped, limit)
        sliced = any(row.slices > 1 for row in hoped.shared.values())
        if self.optional and (cost >= limit or sliced):
            return min(cost, self.real.cost_below(group, min(cost, limit)))
        return cost

    def overlap_ends(self, group: Group) -> tuple[float, float]:
        hoped = self.hoped(group)
        if self.optional and self.real.price(hoped) > self.price(group):
            hoped = group
        return self.real.overlap_ends(hoped)

    def lower_bound(self, group: Group) -> float:
        return self.real.lower_bound(self.hoped(group))

    def least_added(self, group: Group) -> float:
        return self.real.least_added(self.hoped(group))

    def outline(self, group: Group) -> tuple[Hashable, Sequence[str]]:
        return self.real.outline(self.hoped(group))


@dataclass
class ResidencyTable:
    """The parts of a network, and the rows that their groups have agreed on."""

    parts: list[Part]
    prices: Prices
    rows: list[Row] = field(default_factory=list)
    slicings: dict[Hashable, tuple[object, list[Slicing]]] = field(default_factory=dict)
    """How cores can keep a candidate for its readers, with these, by name and their identities."""

    @classmethod
    def of(cls, parts: Iterable[Part], prices: Prices) -> ResidencyTable:
        """The table of parts that have constants on chip already."""
        table = cls(list(parts), prices)
        rows: dict[str, Row] = {}
        for position, part in enumerate(table.parts):
            for name, pinned in part.pinned.items() if isinstance(part, Group) else ():
                grain = table.grain(pinned.memory)
                first = rows[name].span.first if name in rows else position
                span = LiveRange(name, -(-pinned.bytes // grain) * grain, first, position)
                rows[name] = Row(pinned.memory, pinned.address, span)
        table.rows += rows.values()
        return table

    def grain(self, role: str) -> int:
        """What addresses in a memory are multiples of."""
        return math.lcm(self.prices.arch.memories.on_chip()[role].alignment, GRAIN)

    def group(self, position: int) -> Group:
        part = self.parts[position]
        assert isinstance(part, Group)
        return part

    def free_row(
        self, candidate: ResidencyCandidate, limit: int, address: int | None = None,
        size: int | None = None,
    ) -> Row | None:  # fmt: skip
        """The row for a candidate nearest to the end of its memory, or of shared memory nearest to
        the start: the other end is for what groups have of their own. It takes `size` bytes, where
        that depends on how cores keep it, at the `address` that is asked for if one is. None where
        nothing is free in the `limit` bytes that rows may take.
        """
        role, size = candidate.memory, size or candidate.bytes
        total, grain = self.prices.arch.memories.on_chip()[role].size, self.grain(role)
        from_end = role != "shared"
        size = -(-size // grain) * grain if from_end else size

        def opposite(start: int, size: int) -> int:
            return (total - start - size) // grain * grain if from_end else start

        span = LiveRange(candidate.name, size, candidate.first, candidate.last, grain)
        start = 0 if address is None else opposite(address, size)
        there = [
            (opposite(row.address, row.span.size), row.span) for row in self._rows_beside(candidate)
        ]
        offset = lowest(span, there, start) if start >= 0 else limit
        first_byte = opposite(offset, size)
        if offset + size > limit or address not in (None, first_byte):
            return None
        return Row(role, first_byte, span)

    def reserve(self, row: Row) -> dict[str, int]:
        """What groups beside a row have to leave free at the end of its memory."""
        size = self.prices.arch.memories.on_chip()[row.memory].size
        return {row.memory: size - row.address}

    def together(
        self, places: Callable[[ResidencyTable], Iterable[Placement | None]]
    ) -> Placement | None:
        """One place of several, each found with those before it in the table; None: there is none,
        or one of them must not be so."""
        trial = ResidencyTable(list(self.parts), self.prices, list(self.rows), self.slicings)
        changed: dict[int, Group] = {}
        for place in places(trial):
            if place is None:
                return None
            trial.commit(place)
            changed |= place[1]
        return (trial.rows[len(self.rows) :], changed) if changed else None

    def try_place(self, *places: Placement) -> Placement | None:
        """Settle at the best of `places`, which change the same groups, if these are expected to be
        quicker together than those that are there; None where they are not."""
        if not places:
            return None
        best = self.best(places, self._added_cycles({}, places[0][1]))
        if best is not None:
            self.commit(best)
        return best

    def saves(self, place: Placement) -> float:
        """Cycles that the groups changed by `place` are expected to take less."""
        before = self._added_cycles({}, place[1])
        return max(0.0, before - self._added_cycles(place[1], place[1], before))

    def around(self, candidate: ResidencyCandidate, tensors: Collection[str]) -> Hashable:
        """What decides where a candidate that lies in `tensors` is best: the parts from the one
        before it to the one behind it, each with the numbers of these tensors in it, and the rows
        of its memory that live meanwhile."""
        first, last = candidate.first, candidate.last
        parts = []
        for position in range(first - 1, last + 2):
            part = self.parts[position] if 0 <= position < len(self.parts) else None
            outline, names = self.prices.outline(part) if isinstance(part, Group) else (None, ())
            own = (names.index(name) if name in names else -1 for name in tensors)
            parts.append((outline, *own))
        rows = sorted((row.address, row.span.size) for row in self._rows_beside(candidate))
        return tuple(parts), tuple(rows)

    def _rows_beside(self, candidate: ResidencyCandidate) -> Iterator[Row]:
        """Rows of its memory while it is there."""
        role, first, last = candidate.memory, candidate.first, candidate.last
        for row in self.rows:
            if row.span.first <= last and first <= row.span.last and row.memory == role:
                yield row

    def best(self, places: Iterable[Placement], limit: float = math.inf) -> Placement | None:
        """Of `places`, the one with which what is around it is expected to be quickest, if that is
        below `limit`."""
        best = None
        for place in places:
            total = self._added_cycles(place[1], place[1], limit)
            if total < limit:
                limit, best = total, place
        return best

    def _added_cycles(
        self, changed: Mapping[int, Group], around: Collection[int], limit: float = math.inf
    ) -> float:
        """What the parts at `around`, some of them `changed`, and the one behind them add to what
        is before them, if that is below `limit`."""
        first, last = min(around), min(max(around) + 1, len(self.parts) - 1)
        parts = [changed.get(n, self.parts[n]) for n in range(first, last + 1)]
        ask = self.prices.least_added
        least = (ask(part) if isinstance(part, Group) else 0.0 for part in parts[:0:-1])
        rounded = (cycles - ROUNDING * abs(cycles) for cycles in least)
        behind = [*accumulate(rounded, initial=0.0)][::-1] if changed else repeat(0.0)
        return added(parts, self.prices, self._rest(first - 1), limit, behind)

    def _rest(self, position: int) -> float:
        """Cycles at the end of a part in which the one behind it may begin."""
        part = self.parts[position] if position >= 0 else None
        if not isinstance(part, Group) or math.isinf(self.prices.price(part)):
            return 0.0
        return self.prices.overlap_ends(part)[1]

    def commit(self, place: Placement) -> None:
        """Let something lie there."""
        rows, changed = place
        self.rows += rows
        for position, group in changed.items():
            self.parts[position] = group
