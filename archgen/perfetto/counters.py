"""What has a level at each time of a run: memories, DRAM and links, queues, tokens.

The one idea: every level is a list of changes; one that changes too often for a viewer is cut into
bins of equal length, of which each shows its highest level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from archgen.outcomes.timeline import Values, bandwidth, bin_length, occupancy, spans_of
from simmodel.arch.record import Arch
from simmodel.isa import Arrive, Await
from simmodel.metrics import by_instance
from simmodel.program.expand import Site
from simmodel.program.program import Program
from simmodel.trace import Counts, Spans, Trace

# Tokens and barriers of a run: their levels over time, and who waited for whom.

Side = list[tuple[Counts, int]]
"""Spans, by index, and how many tokens each of them gives or takes."""


@dataclass
class TokenTimeline:
    """What happens to one counting semaphore, or to one barrier."""

    core: int
    """-1 for a barrier."""
    name: str
    initial: int = 0
    needed: int = 0
    """Arrivals that open it, where it is a barrier."""
    late: int = 0
    """Cycles from a giver's end until the token is there: of one that another core gives."""
    givers: Side = field(default_factory=list)
    takers: Side = field(default_factory=list)


def tokens_of(
    program: Program, spans: Spans, sites: Sequence[Sequence[Site]], late: int = 0
) -> list[TokenTimeline]:
    """All tokens and barriers that were used in the run.

    Args:
        sites: of each core.
        late: cycles until a core knows of a token that another gives it.
    """
    found: dict[tuple[int, str], TokenTimeline] = {}
    for core, counts in enumerate(program.tokens):
        for name, initial in counts.items():
            found[core, name] = TokenTimeline(core, name, initial)
    for name, needed in program.barriers.items():
        found[-1, name] = TokenTimeline(-1, name, needed=needed)
    for core, number, own in _by_site(spans):
        instruction = sites[core][number].instruction
        for name, count in instruction.signals:
            found[core, name].givers.append((own, count))
        for name, count, cores in instruction.notifies:
            for target in cores:
                found[target, name].givers.append((own, count))
                found[target, name].late = late if target != core else 0
        for name, count in instruction.waits:
            found[core, name].takers.append((own, count))
        if isinstance(instruction, Arrive):
            found[-1, instruction.barrier].givers.append((own, 1))
        if isinstance(instruction, Await):
            found[-1, instruction.barrier].takers.append((own, 1))
    return [token for token in found.values() if token.givers or token.takers]


def _by_site(spans: Spans) -> Iterator[tuple[int, int, Counts]]:
    """Core and number of each site, and its spans in order of time."""
    order = np.lexsort((spans.site, spans.stream))
    stream, site = spans.stream[order], spans.site[order]
    cuts = np.flatnonzero((np.diff(stream) != 0) | (np.diff(site) != 0)) + 1
    for own in np.split(order, cuts) if len(order) else ():
        yield int(spans.stream[own[0]]), int(spans.site[own[0]]), own


def _merge_sides(side: Side, times: Counts) -> tuple[Counts, Counts]:
    """Spans in order of `times`, and how many each gives or takes."""
    if not side:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    who = np.concatenate([own for own, _ in side])
    counts = np.repeat([count for _, count in side], [len(own) for own, _ in side])
    order = np.lexsort((who, times[who]))
    return who[order], counts[order]


def token_changes(token: TokenTimeline, spans: Spans) -> tuple[Counts, Counts]:
    """Cycles at which a token's level changes, and by how much."""
    givers, given = _merge_sides(token.givers, spans.end)
    takers, taken = _merge_sides(token.takers, spans.start)
    cycles = np.concatenate((spans.end[givers] + token.late, spans.start[takers]))
    return cycles, np.concatenate((given, -taken))


def dependences(token: TokenTimeline, spans: Spans) -> Counts:
    """Rows of giver and taker, as indices of spans: whose end let whom start."""
    givers, given = _merge_sides(token.givers, spans.end)
    takers, taken = _merge_sides(token.takers, spans.start)
    if token.core < 0:
        wanted = np.full(len(takers), token.needed)
    else:
        wanted = np.cumsum(taken) - token.initial
    position = np.searchsorted(np.cumsum(given), wanted)
    known = (wanted > 0) & (position < len(givers))
    return np.stack((givers[position[known]], takers[known]), axis=1)


BINS = 2000
SAMPLES = 200_000
"""Most samples of all counters together, about."""
CHIP = -1


@dataclass(frozen=True)
class Counter:
    """A level over time."""

    core: int
    """The core that it belongs to, or `CHIP`."""
    folder: str
    name: str
    unit: str
    times: Counts
    """Cycles."""
    values: Values
    """From each of the times on."""


def counters(
    trace: Trace, program: Program, arch: Arch, tokens: Sequence[TokenTimeline]
) -> Iterator[Counter]:
    """All levels of a run."""
    length = bin_length(trace.cycles, BINS)
    for (role, core), own in sorted(
        by_instance(program.buffers).items(), key=lambda item: (item[0][1] is not None, item[0])
    ):
        where = CHIP if core is None else core
        yield _binned(
            where, "memory", role, "bytes", occupancy(trace, own, length), length, trace.cycles
        )
    for key, values in bandwidth(trace, length):
        yield _binned(CHIP, "bandwidth", key, "bytes/cycle", values, length, trace.cycles)
    queues = [engine for engine in trace.engines if engine.core is not None and engine.instructions]
    most = max(BINS // 10, SAMPLES // max(1, len(queues) + len(tokens)))
    for engine in queues:
        assert engine.core is not None
        yield _queue(trace, arch, engine.core, engine.engine, most)
    spans = spans_of(trace)
    for token in tokens:
        if token.core >= 0:
            times, changes = token_changes(token, spans)
            at, levels = _summed(times, changes, token.initial)
            yield _thinned(Counter(token.core, "tokens", token.name, "tokens", at, levels), most)


def _binned(
    core: int, folder: str, name: str, unit: str, values: Values, length: int, cycles: int
) -> Counter:
    """A counter of one value for each bin, that is sampled where it changes and ends at 0."""
    times = np.append(np.arange(len(values), dtype=np.int64) * length, cycles)
    levels = np.append(values, 0.0)
    return Counter(core, folder, name, unit, *_changed(times, levels))


def _changed(times: Counts, values: Values) -> tuple[Counts, Values]:
    kept = np.ones(len(values), bool)
    kept[1:] = values[1:] != values[:-1]
    return times[kept], values[kept]


def _summed(times: Counts, changes: Counts, initial: int) -> tuple[Counts, Values]:
    """When a level changes, and the level from then on; what happens in one cycle counts as one."""
    at, which = np.unique(np.append(times, 0), return_inverse=True)
    sums = np.bincount(which, np.append(changes, initial), len(at))
    levels: Values = np.cumsum(sums)
    return _changed(at, levels)


def _queue(trace: Trace, arch: Arch, core: int, engine: str, most: int) -> Counter:
    """Instructions that wait in an engine's queue; a burst counts in full, up to the depth."""
    spans = spans_of(trace)
    own = (spans.stream == core) & (spans.engine == trace.engine_names.index(engine))
    issued = spans.instructions[own]
    times = np.concatenate((spans.issue[own], spans.start[own]))
    at, levels = _summed(times, np.concatenate((issued, -issued)), 0)
    depth = arch.front_end.depth(engine)
    at, levels = _changed(at, np.minimum(levels, depth))
    return _thinned(Counter(core, "queues", engine, "instructions", at, levels), most)


def _thinned(counter: Counter, most: int) -> Counter:
    """`counter` with at most about `most` samples: the highest level of bins of equal length."""
    times, values = counter.times, counter.values
    if len(times) <= most:
        return counter
    length = -(-int(times[-1] + 1) // most)
    at = np.arange(int(times[-1]) // length + 1, dtype=np.int64) * length
    # The level that each bin begins with, then what it changes to within.
    highest = values[np.maximum(np.searchsorted(times, at, side="right") - 1, 0)]
    np.maximum.at(highest, times // length, values)
    kept = _changed(np.append(at, at[-1] + length), np.append(highest, values[-1]))
    return Counter(counter.core, counter.folder, counter.name, counter.unit, *kept)
