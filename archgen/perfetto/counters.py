"""What has a level at each time of a run: memories, DRAM and links, queues, tokens.

The one idea: every level is a list of changes; one that changes too often for a viewer is cut into
bins of equal length, of which each shows its highest level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from archgen.outcomes.timeline import Values, bandwidth, bin_length, occupancy, spans_of
from archgen.perfetto.tokens import Token, token_changes
from simmodel.arch import Arch
from simmodel.metrics import by_instance
from simmodel.program import Program
from simmodel.trace import Counts, Trace

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
    trace: Trace, program: Program, arch: Arch, tokens: Sequence[Token]
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
