"""Hazards: unordered accesses of the same bytes, reads of bytes that nothing wrote.

When no two unordered occurrences conflict, all legal orders leave the same bytes, so what is
written before what is read can be followed in any one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from simmodel.arch.base import OFF_CHIP
from simmodel.arch.record import Arch
from simmodel.errors import Finding
from simmodel.isa import Claim
from simmodel.isa.region import Operand
from simmodel.program.program import Place, Program
from simmodel.verify.happens_before import Clocks, Ints, Timeline, barrier_uses
from simmodel.verify.overlap import Accesses, Bools, Rivalries, touched_ends
from simmodel.verify.symbolic import found_at

LISTED = 20
"""Hazards of one kind that are listed."""


def touching(line: Timeline, table: Accesses) -> Accesses:
    """`table` without claims: they keep order within their core, another core does the writing."""
    claims = np.array([isinstance(site.instruction, Claim) for site in line.sites], np.bool_)
    kept = np.flatnonzero(~claims[line.site[table.occurrence]])
    fields = ("occurrence", "write", "region", "operand")
    return replace(table, **{name: getattr(table, name)[kept] for name in fields})


def race_findings(line: Timeline, clocks: Clocks, found: Rivalries) -> Iterator[Finding]:
    """Unordered pairs of occurrences that touch the same byte, one writing."""
    sizes = np.diff(found.bounds)
    swap = sizes[found.first] > sizes[found.second]
    small = np.where(swap, found.second, found.first)
    large = np.where(swap, found.first, found.second)
    asker, group = found.askers(small, large)
    one = found.occurrence[asker]
    ended = clocks.ended(one, found.queue[group])
    index, exists = found.next_at(group, ended, line.position[found.occurrence])
    one, asker, index = one[exists], asker[exists], index[exists]
    two = found.occurrence[index]
    racing = np.flatnonzero(~clocks.before(one, two))
    seen: set[tuple[int, int]] = set()
    for where in racing.tolist():
        pair = int(line.site[one[where]]), int(line.site[two[where]])
        if pair in seen or len(seen) >= LISTED:
            continue
        seen.add(pair)
        yield _race(found, int(found.access[asker[where]]), int(found.access[index[where]]))


def _race(found: Rivalries, first: int, second: int) -> Finding:
    line, table = found.line, found.table
    one, two = (int(table.occurrence[access]) for access in (first, second))
    role, number = table.places[table.place[table.region[first]]]
    verbs = ["writes" if table.write[access] else "reads" for access in (first, second)]
    starts = [int(table.start[table.region[access]]) for access in (first, second)]
    message = (
        f"{line.where(one)} {verbs[0]} and {line.where(two)} {verbs[1]} common bytes of "
        f"{role} {number} (from {starts[0]} and {starts[1]}) in no order"
    )
    site = line.site[one]
    instruction = line.sites[site].instruction
    return found_at(line.program, "race", message, line.owners[site], instruction)


def written_findings(line: Timeline, table: Accesses, order: Ints, arch: Arch) -> Iterator[Finding]:
    """Reads of unwritten bytes, and incomplete outputs."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    # Bytes stay written, so each region matters only when it is first read or first written.
    key = table.region * 2 + table.write
    sorted_ = np.lexsort((rank[table.occurrence], key))
    _, first = np.unique(key[sorted_], return_index=True)
    work = sorted_[first]
    work = work[np.lexsort((table.write[work], rank[table.occurrence[work]]))]
    written = _Written(line, table, arch)
    seen: set[tuple[int, int]] = set()
    for access in work.tolist():
        occurrence, index = int(table.occurrence[access]), int(table.operand[access])
        site, region = int(line.site[occurrence]), int(table.region[access])
        operand = line.sites[site].operands[index]
        address = int(table.start[region]) - operand.span[0]
        if operand.memory in OFF_CHIP and written.constant(
            operand.memory, *(address + n for n in operand.span)
        ):
            continue
        marks = written.marks(table.places[table.place[region]], operand, address)
        if table.write[access]:
            marks[...] = True
        elif not marks.all() and (site, index) not in seen and len(seen) < LISTED:
            seen.add((site, index))
            missing = int(marks.size - np.count_nonzero(marks))
            message = (
                f"{line.where(occurrence)} reads {missing} bytes of {operand.memory} at {address} "
                "that nothing has written"
            )
            instruction = line.sites[site].instruction
            yield found_at(line.program, "unwritten", message, line.owners[site], instruction)
    for port in line.program.outputs:
        if written.constant(port.operand.memory, *port.operand.bounds):
            continue
        marks = written.marks(("dram", 0), port.operand, port.operand.address.base)
        if not marks.all():
            missing = int(marks.size - np.count_nonzero(marks))
            yield Finding("output", f"{missing} bytes of output {port.name!r} are never written")


class _Written:
    """Which bytes of all memories are written, as far as they are touched. Off chip, where nearly
    all is constants, a row of constants has marks only where an access reaches beyond it: marks of
    all take as many addresses as the weights of a network do."""

    def __init__(self, line: Timeline, table: Accesses, arch: Arch) -> None:
        sizes = touched_ends(line, arch)
        self._rows = {role: _constant_rows(line.program, role) for role in OFF_CHIP}
        """By memory, first bytes and ends of constants side by side."""
        self._unmarked = {role: self._inside(line, table, role) for role in OFF_CHIP}
        """Of these rows those without marks: their ends, and the bytes up to each; from 0 on."""
        self._bytes = {
            spot: np.zeros(end - self._left_out(spot[0], end), np.bool_)
            for spot, end in sizes.items()
        }
        for port in line.program.inputs:
            self.marks(("dram", 0), port.operand, port.operand.address.base)[...] = True

    def marks(self, spot: Place, operand: Operand, address: int) -> Bools:
        """Marks of an operand's bytes in a memory, one more dimension for the bytes of an
        element."""
        at = address - self._left_out(spot[0], address + operand.span[0])
        shape, strides = (*operand.bytewise[0], operand.itemsize), (*operand.bytewise[1], 1)
        return np.ndarray(shape, np.bool_, self._bytes[spot], at, strides)

    def constant(self, memory: str, low: int, high: int) -> bool:
        """Whether bytes `low` to `high` of a memory off chip are in one row of constants; otherwise
        the rows that some of them are in are marked."""
        starts, ends = self._rows[memory]
        first, behind = (int(np.searchsorted(*each)) for each in ((ends, low + 1), (starts, high)))
        for start, end in zip(starts[first:behind], ends[first:behind], strict=True):
            if start <= low and high <= end:
                return True
            out = self._left_out(memory, int(start))
            self._bytes[memory, 0][start - out : end - out] = True
        return False

    def _left_out(self, memory: str, address: int) -> int:
        """Bytes of rows without marks before `address`."""
        if memory not in self._unmarked:
            return 0
        ends, bytes_ = self._unmarked[memory]
        return int(bytes_[np.searchsorted(ends, address, side="right")])

    def _inside(self, line: Timeline, table: Accesses, memory: str) -> tuple[Ints, Ints]:
        """Ends of the rows that no access reaches beyond, and their bytes before and after each."""
        starts, ends = self._rows[memory]
        ports = [p.operand.bounds for p in (*line.program.inputs, *line.program.outputs)]
        here = np.array([place[0] == memory for place in table.places], np.bool_)[table.place]
        own = np.array(ports, np.int64).reshape(-1, 2).T
        low, high = np.append(table.start[here], own[0]), np.append(table.end[here], own[1])
        first, behind = np.searchsorted(ends, low + 1), np.searchsorted(starts, high)
        beyond = behind > first
        row = first[beyond]
        beyond[beyond] = (low[beyond] < starts[row]) | (high[beyond] > ends[row])
        marked = np.zeros(len(ends) + 1, np.int64)
        np.add.at(marked, first[beyond], 1)
        np.add.at(marked, behind[beyond], -1)
        left = np.cumsum(marked)[:-1] == 0
        return ends[left], np.append(0, np.cumsum((ends - starts)[left]))


def _constant_rows(program: Program, memory: str) -> tuple[Ints, Ints]:
    """First bytes and ends of constants of `memory`, those side by side as one."""
    own = [(c.address, c.address + c.data.nbytes) for c in program.constants if c.memory == memory]
    starts, ends = np.array(sorted(own), np.int64).reshape(-1, 2).T
    ends = np.maximum.accumulate(ends)
    apart = starts[1:] > ends[:-1]
    count = len(own)
    return starts[np.append(True, apart)[:count]], ends[np.append(apart, True)[:count]]


# Tokens and barriers: one giver and one taker, balance, arrivals, and no wait without an end.

COUNT = 2**31
"""Limit of a token's count, and of what one instruction signals or waits for."""


def token_findings(line: Timeline) -> Iterator[Finding]:
    """Tokens with several signalling or waiting queues, and tokens that do not balance."""
    for use in line.token_uses:
        for role, occurrences in (("signalled", use.givers), ("awaited", use.takers)):
            numbers = line.queue[occurrences]
            if (numbers != numbers[:1]).any():
                found = (line.queues[queue] for queue in np.unique(numbers))
                queues = [e if core == use.core else f"{e} of core {core}" for core, e in found]
                message = f"token {use.name!r} is {role} by {' and '.join(queues)}"
                yield Finding("token-queues", message, use.core)
        given, taken = int(use.given.sum()), int(use.taken.sum())
        if not 0 <= use.initial < COUNT:
            yield Finding("balance", f"token {use.name!r} starts with {use.initial}", use.core)
        if given != taken:
            message = f"token {use.name!r} is given {given} and taken {taken} times"
            yield Finding("balance", message, use.core)


def barrier_findings(line: Timeline) -> Iterator[Finding]:
    """Barriers whose arrivals differ from the declared number."""
    uses = barrier_uses(line)
    for name, declared in line.program.barriers.items():
        arrivals = len(uses[name][0]) if name in uses else 0
        if arrivals != declared:
            yield Finding("barrier", f"barrier {name!r}: {arrivals} arrivals, declared {declared}")
