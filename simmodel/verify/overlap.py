"""Which accesses of a program touch the same bytes: exact, and in bulk.

An access is one operand of one occurrence. Accesses of the same box at the same address in the same
memory share a *region*; regions are few, so the geometry is done on them:

    accesses -> regions -> pairs whose bounding intervals meet -> pairs whose bytes meet
             -> groups (region, queue, reads or writes), each in order of time

Two groups of different queues whose regions meet, one of them writing, are a *rivalry*. What has to
hold between their accesses is then a search in sorted arrays (`Rivalries.next_at`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simmodel.arch.record import Arch
from simmodel.isa.region import cached_property
from simmodel.program.program import Place, places
from simmodel.verify.happens_before import (
    Clocks,
    Dependencies,
    Ints,
    Timeline,
    dependencies,
    sequence,
)

Bools = NDArray[np.bool_]
Dims = tuple[tuple[int, int], ...]
"""(extent, stride in bytes), largest stride first, all strides positive."""
FAR = 1 << 42
"""Bytes; addresses stay below."""
CHUNK = 1 << 20
"""Pairs per chunk; limits the memory for a program full of overlaps."""


@dataclass(frozen=True)
class Box:
    """Runs of `run` bytes, repeated along `dims`; its start is stored separately."""

    run: int
    dims: Dims

    @cached_property
    def size(self) -> int:
        """Bytes from its first to its last, gaps included."""
        return self.run + sum((extent - 1) * stride for extent, stride in self.dims)


@lru_cache(maxsize=1 << 14)
def _box(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Box:
    """The bytes of an operand, relative to the lowest, shared by equal operands, above all of
    different cores."""
    run, dims = itemsize, []
    pairs = zip(shape, strides, strict=True)
    for stride, extent in sorted((abs(s), n) for n, s in pairs if n > 1 and s):
        if stride <= run:
            run += (extent - 1) * stride
        else:
            dims.append((extent, stride))
    return Box(run, tuple(reversed(dims)))


def meet(pairs: Sequence[tuple[Box, Box]], kind: Ints, delta: Ints) -> Bools:
    """Whether the bytes of two boxes, the second of which starts `delta` bytes further, have one in
    common: number i is about `pairs[kind[i]]`, all of which have their distinct strides in common.

    A common byte exists if the starts of two runs, one of each, differ by less than a run. The
    difference is a sum over distinct strides of an integer times the stride, and every integer in a
    range is possible; so the integers are chosen from the largest stride down, and only those kept
    from which the rest can still reach the goal.
    """
    levels = np.array([_levels(a, b) for a, b in pairs], np.int64).reshape(len(pairs), -1, 3)
    # What the levels behind each one can add.
    least, most = (levels[:, :, 0] * levels[:, :, column] for column in (1, 2))
    low = np.array([1 - a.run for a, _ in pairs], np.int64)
    high = np.array([b.run - 1 for _, b in pairs], np.int64)
    asked, residue = np.arange(len(delta)), -delta
    for index in range(levels.shape[1]):
        stride, rest = int(levels[0, index, 0]), slice(index + 1, None)
        above = (least[:, rest].sum(axis=1) - high)[kind][asked]
        below = (most[:, rest].sum(axis=1) - low)[kind][asked]
        first = np.maximum(-((residue + below) // stride), levels[:, index, 1][kind][asked])
        last = np.minimum((-above - residue) // stride, levels[:, index, 2][kind][asked])
        counts = np.maximum(last - first + 1, 0)
        factors = ranges(first, counts)
        asked = np.repeat(asked, counts)
        residue = np.repeat(residue, counts) + factors * stride
        if len(asked) > 2 * len(delta):
            asked, residue = _distinct(asked, residue)
    found = np.zeros(len(delta), np.bool_)
    found[asked[(residue >= low[kind][asked]) & (residue <= high[kind][asked])]] = True
    return found


def _distinct(asked: Ints, residue: Ints) -> tuple[Ints, Ints]:
    """The pairs (asked, residue), each once: sorted as single numbers, which is fast."""
    least = int(residue.min())
    width = int(residue.max()) - least + 1
    keys = np.sort(asked * width + (residue - least))
    keys = keys[np.append(True, np.diff(keys) != 0)]
    return keys // width, keys % width + least


@lru_cache(maxsize=1 << 14)
def _levels(a: Box, b: Box) -> tuple[tuple[int, int, int], ...]:
    """Each distinct stride and the range of its factor in (place in a) - (place in b)."""
    levels: dict[int, tuple[int, int]] = {}
    both = [(stride, 0, extent - 1) for extent, stride in a.dims]
    both += [(stride, 1 - extent, 0) for extent, stride in b.dims]
    for stride, low, high in both:
        least, most = levels.get(stride, (0, 0))
        levels[stride] = least + low, most + high
    return tuple((stride, *levels[stride]) for stride in sorted(levels, reverse=True))


def ranges(starts: Ints, counts: Ints) -> Ints:
    """`starts[i], starts[i] + 1, ...`, `counts[i]` numbers for each i, one after another."""
    offsets = np.cumsum(counts) - counts
    result: Ints = np.arange(int(counts.sum())) + np.repeat(starts - offsets, counts)
    return result


@dataclass(frozen=True, eq=False)
class Accesses:
    """Every access of a program, with its region."""

    occurrence: Ints
    write: Bools
    region: Ints
    operand: Ints
    """Index into the operands of the occurrence's site."""
    place: Ints
    """Per region: index into `places`."""
    box: Ints
    """Per region: index into `boxes`."""
    start: Ints
    """Per region: lowest byte."""
    places: tuple[Place, ...]
    boxes: tuple[Box, ...]

    @cached_property
    def end(self) -> Ints:
        """Per region: one past its highest byte."""
        sizes = np.array([box.size for box in self.boxes], np.int64)
        result: Ints = self.start + sizes[self.box] if len(self.box) else self.start
        return result

    @cached_property
    def written(self) -> Bools:
        """Per region: whether any access writes it."""
        result = np.zeros(len(self.start), np.bool_)
        result[self.region[self.write]] = True
        return result


def accesses(line: Timeline, arch: Arch) -> Accesses:
    """Accesses and regions of all occurrences of `line`."""
    spots: dict[Place, int] = {}
    boxes: dict[Box, int] = {}
    table = line.operands
    rows: list[tuple[int, int, int]] = []
    """Box, place and first byte of each kind of operand, once for each place that it lies in."""
    several: list[int] = []
    for kind, core in table.kinds:
        box = boxes.setdefault(_box(*kind.bytewise, kind.itemsize), len(boxes))
        own = [spots.setdefault(each, len(spots)) for each in places(arch, kind, core)]
        rows += [(box, spot, kind.span[0]) for spot in own]
        several.append(len(own))
    many = np.array(several, np.int64)
    # An access for each place, operand after operand, each at all occurrences of its site.
    operand = np.repeat(np.arange(len(table.kind)), many[table.kind])
    row = ranges((np.cumsum(many) - many)[table.kind], many[table.kind])
    counts, site = table.counts[operand], table.site[operand]
    of_site = np.array([len(found) for found in line.occurrences], np.int64)
    found = np.concatenate([np.empty(0, np.int64), *line.occurrences])
    occurrence = found[ranges((np.cumsum(of_site) - of_site)[site], counts)]
    moved = table.address[ranges(table.starts[operand], counts)]
    operand, row = np.repeat(operand, counts), np.repeat(row, counts)
    box_of_access, place, low = np.array(rows, np.int64).reshape(-1, 3)[row].T
    start = moved + low
    key = (place * max(len(boxes), 1) + box_of_access) * FAR + start
    _, first, region = np.unique(key, return_index=True, return_inverse=True)
    return Accesses(
        occurrence, table.write[operand], region.astype(np.int64), table.index[operand],
        place[first], box_of_access[first], start[first], tuple(spots), tuple(boxes),
    )  # fmt: skip


def touched_ends(line: Timeline, arch: Arch) -> dict[Place, int]:
    """By memory instance one past its last byte that instructions, ports or constants touch."""
    program, dram = line.program, ("dram", 0)
    ends = [port.operand.bounds[1] for port in (*program.inputs, *program.outputs)]
    found: dict[Place, int] = {dram: max([1, *ends])}
    for constant in program.constants:
        spot = constant.memory, 0
        found[spot] = max(found.get(spot, 1), constant.address + constant.data.nbytes)
    table = line.operands
    high = np.ones(len(table.kinds), np.int64)
    np.maximum.at(high, table.kind, table.reaches[1])
    for (kind, core), end in zip(table.kinds, high.tolist(), strict=True):
        for spot in places(arch, kind, core):
            found[spot] = max(found.get(spot, 1), end)
    return found


def _meeting(table: Accesses) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of regions whose bounding intervals meet and of which one is written, each once, in
    chunks; each written region with itself too."""
    own = np.flatnonzero(table.written)
    yield own, own
    # One line of bytes for all places, far enough from each other.
    base = table.place * FAR
    regions = np.argsort(base + table.start, kind="stable")
    start, end = (base + table.start)[regions], (base + table.end)[regions]
    written = table.written[regions]
    rank = np.arange(len(regions))
    upto = np.searchsorted(start, end, side="left")
    writers = rank[written]
    for first, second in _chunked(writers, writers + 1, upto[writers] - writers - 1):
        yield regions[first], regions[second]
    # A region that is only read meets the later writers: search among writers alone.
    readers = rank[~written]
    begin = np.searchsorted(writers, readers)
    stop = np.searchsorted(start[writers], end[readers], side="left")
    for first, second in _chunked(readers, begin, stop - begin):
        yield regions[first], regions[writers[second]]


def _chunked(first: Ints, starts: Ints, counts: Ints) -> Iterator[tuple[Ints, Ints]]:
    total = np.cumsum(counts)
    at = 0
    while at < len(first):
        done = total[at - 1] if at else 0
        upto = max(at + 1, int(np.searchsorted(total, done + CHUNK, side="right")))
        piece = slice(at, upto)
        yield np.repeat(first[piece], counts[piece]), ranges(starts[piece], counts[piece])
        at = upto


def _touching(table: Accesses, first: Ints, second: Ints) -> Bools:
    """Whether the regions of each pair have a byte in common."""
    keep = np.ones(len(first), np.bool_)
    delta = table.start[second] - table.start[first]
    kinds, kind = np.unique(table.box[first] * len(table.boxes) + table.box[second],
                            return_inverse=True)  # fmt: skip
    pairs = [(table.boxes[k // len(table.boxes)], table.boxes[k % len(table.boxes)]) for k in kinds]
    alike: dict[tuple[int, ...], list[int]] = {}
    for number, (a, b) in enumerate(pairs):
        if a.dims or b.dims:
            strides = tuple([stride for stride, *_ in _levels(a, b)])
            alike.setdefault(strides, []).append(number)
    family = np.full(len(pairs), -1, np.int64)
    place = np.zeros(len(pairs), np.int64)
    for index, numbers in enumerate(alike.values()):
        family[numbers], place[numbers] = index, np.arange(len(numbers))
    order = np.argsort(family[kind], kind="stable")
    edges = np.searchsorted(family[kind][order], np.arange(len(alike) + 1))
    for index, numbers in enumerate(alike.values()):
        where = order[edges[index] : edges[index + 1]]
        # Pairs of boxes recur at the same distance; single numbers are sorted fast.
        own, moved = place[kind[where]], delta[where]
        least = int(moved.min())
        width = int(moved.max()) - least + 1
        keys, back = np.unique(own * width + (moved - least), return_inverse=True)
        keep[where] = meet([pairs[n] for n in numbers], keys // width, keys % width + least)[back]
    return keep


@dataclass(frozen=True, eq=False)
class Rivalries:
    """Groups of accesses, and the pairs of groups of which one writes bytes that the other
    touches."""

    line: Timeline
    table: Accesses
    access: Ints
    """Accesses sorted by group, then by time."""
    bounds: Ints
    """Per group: where it starts in `access`; one more entry for the end."""
    queue: Ints
    """Per group."""
    first: Ints
    second: Ints
    """Pairs of groups."""

    @cached_property
    def occurrence(self) -> Ints:
        """Occurrences in the order of `access`."""
        result: Ints = self.table.occurrence[self.access]
        return result

    def next_at(self, group: Ints, bound: Ints, key: Ints) -> tuple[Ints, Bools]:
        """For each query: index of the first entry of `group` whose `key` is >= `bound`.

        Args:
            group, bound: one per query.
            key: a number per entry of `access`, rising within each group.

        Returns:
            The index into `access`, and whether there is such an entry.
        """
        scale = int(max(key.max(initial=0), bound.max(initial=0))) + 2
        groups = np.repeat(np.arange(len(self.queue)), np.diff(self.bounds))
        index = np.searchsorted(groups * scale + key, group * scale + np.maximum(bound, 0))
        return index, index < self.bounds[group + 1]

    def askers(self, groups: Ints, others: Ints) -> tuple[Ints, Ints]:
        """Every entry of each of `groups`, and the group of `others` that it faces."""
        counts = self.bounds[groups + 1] - self.bounds[groups]
        return ranges(self.bounds[groups], counts), np.repeat(others, counts)


def rivalries(
    line: Timeline, table: Accesses, clocks: Clocks, *, of_one_core: bool | None = None
) -> Rivalries:
    """All rivalries between queues, `of_one_core` or of two, but those of which `clocks` say that
    one group as a whole ends before the other begins; geometry, which is expensive, comes last."""
    queue = line.queue[table.occurrence]
    tag = (table.region * max(len(line.queues), 1) + queue) * 2 + table.write
    order = np.lexsort((table.occurrence, tag))
    tags, begins = np.unique(tag[order], return_index=True)
    bounds = np.append(begins, len(order)).astype(np.int64)
    write = (tags % 2).astype(np.bool_)
    queues, region = tags // 2 % max(len(line.queues), 1), tags // 2 // max(len(line.queues), 1)
    core = np.array([owner for owner, _ in line.queues], np.int64)[queues]
    limits = np.searchsorted(region, np.arange(len(table.start) + 1))
    occurrence = table.occurrence[order]
    begin, end = occurrence[bounds[:-1]], occurrence[bounds[1:] - 1]
    none = np.empty(0, np.int64)
    found: list[tuple[Ints, Ints]] = [(none, none)]
    for one, two in _meeting(table):
        first, second = _group_pairs(limits, one, two)
        keep = (write[first] | write[second]) & (queues[first] != queues[second])
        keep &= (region[first] != region[second]) | (first < second)
        if of_one_core is not None:
            keep &= (core[first] == core[second]) == of_one_core
        first, second = first[keep], second[keep]
        ordered = clocks.before(end[first], begin[second])
        ordered |= clocks.before(end[second], begin[first])
        first, second = first[~ordered], second[~ordered]
        count = max(len(table.start), 1)
        both, back = np.unique(region[first] * count + region[second], return_inverse=True)
        touch = _touching(table, both // count, both % count)[back]
        found.append((first[touch], second[touch]))
    return Rivalries(
        line, table, order, bounds, queues,
        np.concatenate([pair[0] for pair in found]), np.concatenate([pair[1] for pair in found]),
    )  # fmt: skip


def _group_pairs(limits: Ints, one: Ints, two: Ints) -> tuple[Ints, Ints]:
    """All pairs of a group of region one[i] and a group of region two[i]."""
    many, others = limits[one + 1] - limits[one], limits[two + 1] - limits[two]
    first = ranges(limits[one], many)
    repeats = np.repeat(others, many)
    return np.repeat(first, repeats), ranges(np.repeat(limits[two], many), repeats)


def conflicts(line: Timeline, table: Accesses, clocks: Clocks) -> tuple[Ints, Ints]:
    """Edges (target, source) that an interlock enforces: conflicts of one core in program order.

    For each access only the latest conflicting one of each other queue, or of each access only the
    first behind it: the order within queues implies the rest. Of two groups the smaller one asks,
    as many small ones face one that is large. What `clocks` (of barriers) orders as a whole needs
    no edge.
    """
    found = rivalries(line, table, clocks, of_one_core=True)
    behind = np.concatenate([found.first, found.second])
    ahead = np.concatenate([found.second, found.first])
    sizes = np.diff(found.bounds)
    fewer = sizes[behind] < sizes[ahead]
    asker, group = found.askers(behind[fewer], ahead[fewer])
    target = found.occurrence[asker]
    following, _ = found.next_at(group, target, found.occurrence)
    earlier = following > found.bounds[group]
    target, source = target[earlier], found.occurrence[following[earlier] - 1]
    asker, group = found.askers(ahead[~fewer], behind[~fewer])
    first, exists = found.next_at(group, found.occurrence[asker], found.occurrence)
    target = np.concatenate([target, found.occurrence[first[exists]]])
    source = np.concatenate([source, found.occurrence[asker[exists]]])
    queues, total = max(len(line.queues), 1), max(len(line.site), 1)
    # Single numbers are sorted fast.
    pairs = np.sort((target * queues + line.queue[source]) * total + source)
    pairs = pairs[np.append(np.diff(pairs // total) != 0, True)[: len(pairs)]]
    return pairs // total // queues, pairs % total


def legal_edges(line: Timeline, arch: Arch, table: Accesses | None = None) -> Dependencies:
    """All edges that the machine respects: on interlock machines the hardware's too. They are found
    once.

    Raises:
        Stuck: tokens and barriers alone let nothing go on.
    """
    for known, found in line.legal:
        if known is arch:
            return found
    edges = dependencies(line)
    if arch.front_end.sync == "interlock":
        clocks = Clocks(line, edges, sequence(line, edges))
        edges = edges.plus(*conflicts(line, table or accesses(line, arch), clocks))
    line.legal.append((arch, edges))
    return edges
