"""What has a level at each time of a run: memories, DRAM and links, queues, tokens.

The one idea: every level is a list of changes; one that changes too often for a viewer is cut into
bins of equal length, of which each shows its highest level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from archgen.outcomes import timeline as timelines
from archgen.outcomes.timeline import Values, spans_of
from simmodel.arch.record import Arch
from simmodel.metrics import by_instance
from simmodel.program.program import Program
from simmodel.trace import Counts, Spans, Trace
from simmodel.verify.happens_before import TokenUse, barrier_uses, timeline

# Tokens and barriers of a run: their levels over time, and who waited for whom.


def tokens_of(program: Program, spans: Spans) -> list[TokenUse]:
    """Tokens, and barriers as tokens of core -1, that the run used; who gives and takes them are
    indices of spans."""
    line = timeline(program)
    span = np.empty(len(line.site), np.int64)
    span[timelines.occurrences_of(line, spans)] = np.arange(len(spans.start))
    found = [
        replace(use, givers=span[use.givers], takers=span[use.takers])
        for use in line.token_uses
        if len(use.givers) or len(use.takers)
    ]
    for name, uses in barrier_uses(line).items():
        givers, takers = (span[np.array(each, np.int64)] for each in uses)
        givers = givers[np.argsort(spans.end[givers], kind="stable")]
        taken = np.zeros_like(takers)
        taken[:1] = program.barriers[name]  # whoever takes it needs as many arrivals
        found.append(TokenUse(-1, name, 0, givers, np.ones_like(givers), takers, taken))
    return found


def dependences(use: TokenUse) -> Counts:
    """Rows of giver and taker, as indices of spans: whose end let whom start."""
    known = (use.needed >= 0) & (use.needed < len(use.givers))
    return np.stack((use.givers[use.needed[known]], use.takers[known]), axis=1)


BINS = 2000
SAMPLES = 200_000
"""Most samples of all counters together, about."""
CHIP = -1
UNITS = {
    "memory": "bytes", "bandwidth": "bytes/cycle", "queues": "instructions", "tokens": "tokens",
}  # fmt: skip


@dataclass(frozen=True)
class Counter:
    """A level over time."""

    core: int
    """The core that it belongs to, or `CHIP`."""
    folder: str
    name: str
    times: Counts
    """Cycles."""
    values: Values
    """From each of the times on."""


def counters(
    trace: Trace, program: Program, arch: Arch, tokens: Sequence[TokenUse]
) -> Iterator[Counter]:
    """All levels of a run."""
    length = timelines.bin_length(trace.cycles, BINS)
    for (role, core), own in sorted(
        by_instance(program.buffers).items(), key=lambda item: (item[0][1] is not None, item[0])
    ):
        at = CHIP if core is None else core, "memory", role
        yield Counter(*at, *_binned(timelines.occupancy(trace, own, length), length, trace.cycles))
    for key, values in timelines.bandwidth(trace, length):
        yield Counter(CHIP, "bandwidth", key, *_binned(values, length, trace.cycles))
    queues = [engine for engine in trace.engines if engine.core is not None and engine.instructions]
    most = max(BINS // 10, SAMPLES // max(1, len(queues) + len(tokens)))
    for engine in queues:
        assert engine.core is not None
        yield _queue(trace, arch, engine.core, engine.engine, most)
    spans, delay = spans_of(trace), arch.front_end.signal.cycles(arch.clock)
    for use in tokens:
        if use.core >= 0:
            given = spans.end[use.givers] + delay * (spans.stream[use.givers] != use.core)
            times = np.concatenate((given, spans.start[use.takers]))
            levels = _summed(times, np.concatenate((use.given, -use.taken)), use.initial)
            yield Counter(use.core, "tokens", use.name, *_thinned(*levels, most))


def _binned(values: Values, length: int, cycles: int) -> tuple[Counts, Values]:
    """One value for each bin, sampled where it changes, which ends at 0."""
    times = np.append(np.arange(len(values), dtype=np.int64) * length, cycles)
    return _changed(times, np.append(values, 0.0))


def _changed(times: Counts, values: Values) -> tuple[Counts, Values]:
    kept = np.ones(len(values), bool)
    kept[1:] = values[1:] != values[:-1]
    return times[kept], values[kept]


def _summed(times: Counts, changes: Counts, initial: int) -> tuple[Counts, Values]:
    """When a level changes, and the level from then on; what happens in one cycle counts as one."""
    at, which = np.unique(np.append(times, 0), return_inverse=True)
    levels: Values = np.cumsum(np.bincount(which, np.append(changes, initial), len(at)))
    return _changed(at, levels)


def _queue(trace: Trace, arch: Arch, core: int, engine: str, most: int) -> Counter:
    """Instructions that wait in an engine's queue; a burst counts in full, up to the depth."""
    spans = spans_of(trace)
    own = (spans.stream == core) & (spans.engine == trace.engine_names.index(engine))
    issued = spans.instructions[own]
    times = np.concatenate((spans.issue[own], spans.start[own]))
    at, levels = _summed(times, np.concatenate((issued, -issued)), 0)
    changes = _changed(at, np.minimum(levels, arch.front_end.depth(engine)))
    return Counter(core, "queues", engine, *_thinned(*changes, most))


def _thinned(times: Counts, values: Values, most: int) -> tuple[Counts, Values]:
    """At most about `most` samples: the highest level of bins of equal length."""
    if len(times) <= most:
        return times, values
    length = -(-int(times[-1] + 1) // most)
    at = np.arange(int(times[-1]) // length + 1, dtype=np.int64) * length
    # The level that each bin begins with, then what it changes to within.
    highest = values[np.maximum(np.searchsorted(times, at, side="right") - 1, 0)]
    np.maximum.at(highest, times // length, values)
    return _changed(np.append(at, at[-1] + length), np.append(highest, values[-1]))
