"""One run over time, small enough to be kept with every point of a study: two frames.

`spans` says which engine worked for which node and when. `levels` cuts the run into bins of equal
length and says what each memory held, what moved, and how busy each engine was. The one idea: bytes
and busy cycles of an instruction are spread evenly from where its traffic begins, or it starts, to
its end, so the bins add up exactly to the trace's traffic and to the engines' busy cycles.

`archgen.outcomes.columns` defines both frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from archgen.outcomes.columns import LEVEL_COLUMNS, SPAN_COLUMNS
from archgen.outcomes.frame import table_bytes, with_identity
from archgen.outcomes.points import Row
from simmodel.arch.memories import Memory
from simmodel.arch.record import Arch
from simmodel.metrics import fullest, taken
from simmodel.program.program import Buffer, Program
from simmodel.trace import Counts, Spans, Trace
from simmodel.verify.happens_before import Timeline

BINS = 400
PAUSES = 2000
"""Pauses shorter than this part of the run are bridged."""
Values = NDArray[np.float64]


def tables(trace: Trace, program: Program, arch: Arch, identity: Row) -> dict[str, bytes | Path]:
    """Both frames as Parquet, with the columns of `identity`; none for a run without its trace."""
    if trace.spans is None:
        return {}
    spans = with_identity(spans_table(trace, program), identity, SPAN_COLUMNS)
    levels = with_identity(levels_table(trace, program, arch), identity, LEVEL_COLUMNS)
    return {"spans": table_bytes(spans), "levels": table_bytes(levels)}


@dataclass(frozen=True)
class Merged:
    """Stretches of spans of one origin on one engine; arrays of one entry per stretch."""

    first: Counts
    """Index of the first span in it."""
    end: Counts
    instructions: Counts
    member: Counts
    """Which stretch each span is in, in order of spans."""


def spans_table(trace: Trace, program: Program) -> pd.DataFrame:
    """When each engine worked for what: `SPAN_COLUMNS` without those of the point.

    Raises ValueError when `trace` was made without spans.
    """
    spans = spans_of(trace)
    merged = merge(spans, max(1.0, trace.cycles / PAUSES))
    first = merged.first
    origins = spans.origin[first]
    known = program.origins
    columns = {
        "core": (spans.core[first], "Int64"),
        "engine": (_names_by_index(trace.engine_names, spans.engine[first]), "string"),
        "group": (_names_by_index([origin.group for origin in known] or [0], origins), "Int64"),
        "node": (_names_by_index([origin.node for origin in known] or [""], origins), "string"),
        "start_cycle": (spans.start[first], "Int64"),
        "end_cycle": (merged.end, "Int64"),
        "instructions": (merged.instructions, "Int64"),
    }
    # Typed array by array: that is done for each point, and a frame's `astype` takes far longer.
    return pd.DataFrame(
        {name: pd.Series(values, dtype=kind).array for name, (values, kind) in columns.items()}
    )


def spans_of(trace: Trace) -> Spans:
    """The spans of `trace`; ValueError where it has none."""
    if trace.spans is None:
        raise ValueError(f"the run of {trace.program} was simulated without its trace")
    return trace.spans


def occurrences_of(line: Timeline, spans: Spans) -> Counts:
    """Of each span of a run, the occurrence in `line` that ran."""
    bases = np.cumsum([0, *(len(each.sites) for each in line.program.expanded)])
    first = np.cumsum([0, *map(len, line.occurrences)])[bases[spans.stream] + spans.site]
    every: Counts = np.concatenate([np.empty(0, np.int64), *line.occurrences])
    return every[first + spans.occurrence]


def _names_by_index(names: Sequence[object], which: NDArray[np.int32]) -> NDArray[np.object_]:
    return np.array(names, object)[which]


def merge(spans: Spans, pause: float) -> Merged:
    """Spans of one core, engine and origin as one stretch, where less than `pause` cycles pass from
    one to the next; in order of their starts. What only synchronizes is left out."""
    works = np.flatnonzero(spans.end > spans.start)
    keys = (spans.start, spans.origin, spans.engine, spans.core)  # lexsort: the last one first
    order = works[np.lexsort([key[works] for key in keys])]
    start, end = spans.start[order], spans.end[order]
    new = np.ones(len(order), bool)
    new[1:] = start[1:] - end[:-1] >= pause
    for key in keys[1:]:
        new[1:] |= np.diff(key[order]) != 0
    heads = np.flatnonzero(new)
    stretch = np.cumsum(new) - 1
    by_start = np.argsort(start[heads], kind="stable")
    rank = np.empty_like(by_start)
    rank[by_start] = np.arange(len(heads))
    member = np.full(len(spans.start), -1, np.int64)
    member[order] = rank[stretch]
    tails = np.append(heads[1:], len(order)) - 1 if len(heads) else heads
    counts = np.add.reduceat(spans.instructions[order], heads) if len(heads) else heads
    return Merged(order[heads][by_start], end[tails][by_start], counts[by_start], member)


def bin_length(cycles: int, bins: int = BINS) -> int:
    """Whole cycles of each of about `bins` bins."""
    return max(1, -(-cycles // bins))


def levels_table(trace: Trace, program: Program, arch: Arch) -> pd.DataFrame:
    """Levels over time: `LEVEL_COLUMNS` without those of the point; ValueError as `spans_table`."""
    length = bin_length(trace.cycles)
    bins = max(1, -(-trace.cycles // length))
    series = [
        *(("occupancy", *each) for each in _worst(trace, program, arch, length)),
        *(("bandwidth", *each) for each in bandwidth(trace, length)),
        *(("busy", *each) for each in busy(trace, length)),
    ]
    cycle = np.tile(np.arange(bins, dtype=np.int64) * length, len(series))
    return pd.DataFrame(
        {
            "kind": pd.array([kind for kind, _, _ in series], "string").repeat(bins),
            "name": pd.array([name for _, name, _ in series], "string").repeat(bins),
            "cycle": pd.array(cycle, "Int64"),
            "value": np.concatenate([np.zeros(0), *(values for _, _, values in series)]),
        }
    )


def bandwidth(trace: Trace, length: int) -> Iterator[tuple[str, Values]]:
    """Key of the trace's traffic, and mean bytes per cycle in each bin of `length` cycles."""
    spans = spans_of(trace)
    for key in trace.traffic:
        moved = spans.moved.get(key, np.zeros_like(spans.start))
        yield key, spread(spans.begin, spans.end, moved, trace.cycles, length)


def busy(trace: Trace, length: int) -> Iterator[tuple[str, Values]]:
    """`core0.matrix` or `host`, and the share of each bin in which that engine is busy."""
    spans = spans_of(trace)
    for engine in trace.engines:
        core = -1 if engine.core is None else engine.core
        own = spans.core == core
        own &= spans.engine == trace.engine_names.index(engine.engine)
        name = engine.engine if engine.core is None else f"core{core}.{engine.engine}"
        if core >= 0 or engine.instructions:
            yield (
                name,
                spread(spans.start[own], spans.end[own], spans.busy[own], trace.cycles, length),
            )


def spread(start: Counts, end: Counts, amount: Counts, cycles: int, length: int) -> Values:
    """Mean per cycle, in bins of `length` cycles, of amounts each spread evenly from `start` to
    `end`."""
    bins = max(1, -(-cycles // length))
    some = (amount > 0) & (end > start)
    if not some.any():
        return np.zeros(bins)
    start, end = start[some], end[some]
    rate = amount[some] / (end - start)
    times, place = np.unique(np.concatenate([start, end]), return_inverse=True)
    level = np.cumsum(np.bincount(place, np.concatenate([rate, -rate])))
    # Sums of rates that come and go leave rounding behind where as many have gone as have come.
    level[np.cumsum(np.bincount(place, np.repeat([1, -1], len(rate)))) == 0] = 0.0
    total = np.append(0.0, np.cumsum(level[:-1] * np.diff(times)))
    means: Values = np.diff(np.interp(np.arange(bins + 1) * length, times, total)) / length
    return means


def group_spans(trace: Trace, steps: Sequence[int]) -> dict[int, tuple[int, int]]:
    """First and last cycle of each of `steps` (groups); one without instructions passes when those
    before it have ended."""
    ends: dict[int, tuple[int, int]] = {}
    for origin in trace.origins:
        low, high = ends.get(origin.group, (origin.first, origin.last))
        ends[origin.group] = min(low, origin.first), max(high, origin.last)
    found: dict[int, tuple[int, int]] = {}
    now = 0
    for step in sorted({*ends, *steps}):
        found[step] = ends.get(step, (now, now))
        now = max(now, found[step][1])
    return found


def occupancy(trace: Trace, buffers: Sequence[Buffer], length: int) -> Values:
    """Most bytes of one memory that the steps running in each bin of `length` cycles take."""
    bins = max(1, -(-trace.cycles // length))
    values = np.zeros(bins)
    changes = taken(buffers)
    level = 0
    for step, (first, last) in group_spans(trace, list(changes)).items():
        level = changes.get(step, level)
        low = min(first // length, bins - 1)
        high = max(low + 1, -(-last // length))
        values[low:high] = np.maximum(values[low:high], level)
    return values


def _worst(trace: Trace, program: Program, arch: Arch, length: int) -> Iterator[tuple[str, Values]]:
    """Name and occupancy of each memory, and of its banks where each is a range of its own."""
    buffers = fullest(program.buffers)
    for role in arch.memories.roles():
        own = buffers.get(role, [])
        yield role, occupancy(trace, own, length)
        memory = arch.memories.get(role)
        if isinstance(memory, Memory) and memory.mapping == "blocked":
            for bank in range(memory.banks):
                low = bank * memory.bank_size
                inside = clipped(own, low, low + memory.bank_size)
                yield f"{role}.bank{bank}", occupancy(trace, inside, length)


def clipped(buffers: Sequence[Buffer], low: int, high: int) -> list[Buffer]:
    """The parts of `buffers` at addresses from `low` up to `high`."""
    found = []
    for buffer in buffers:
        start, end = max(low, buffer.address), min(high, buffer.address + buffer.size)
        if start < end:
            found.append(replace(buffer, address=start, size=end - start))
    return found
