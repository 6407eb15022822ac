"""A run as a file that the Perfetto viewer (ui.perfetto.dev) opens; see docs/trace.md.

The chip is a process and each core one, engines are their threads. Every level (memories, DRAM and
links, queues, tokens) is a list of changes; one that changes too often for a viewer is cut into
bins of equal length, of which each shows its highest level.

The one idea: a slice is a span of the run, so it can be followed to its instruction. A run with
more spans than a viewer shows fluently is drawn in stretches instead: spans of one node on one
engine, with the pauses between them bridged up to the shortest pause that leaves few enough.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from archgen.outcomes import timeline as timelines
from archgen.outcomes.timeline import Merged, Values, merge, spans_of
from archgen.process.files import write_bytes
from simmodel.arch.record import Arch
from simmodel.metrics import by_instance
from simmodel.program.assembly import print_item
from simmodel.program.program import Origin, Program
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


SLICES = 150_000
"""Most slices in a file."""
_FINEST = 1_000_000
"""The first pause that is bridged is this part of the run."""
_CLEARED, _INCREMENTAL, _EXPLICIT = 1, 2, 3
_BEGIN, _END, _SAMPLE = 1, 2, 4
_ARGUMENTS, _TEXTS = "debug_annotation_names", "debug_annotation_string_values"
_FIRST_THREAD = 1001
Arrows = dict[int, list[int]]
"""By slice the numbers of arrows."""


def write_trace(path: Path, trace: Trace, program: Program, arch: Arch) -> None:
    """Write the run to `path`, whole or not at all, compressed where its name ends in `.gz`.

    Raises ValueError when `trace` was made without spans, OSError when it cannot be written.
    """
    content = trace_bytes(trace, program, arch)
    if path.suffix == ".gz":
        content = compressed(content)
    write_bytes(path, content)


def compressed(content: bytes) -> bytes:
    """`content` as a gzip file, the same for the same content."""
    return gzip.compress(content, compresslevel=6, mtime=0)


def trace_bytes(trace: Trace, program: Program, arch: Arch) -> bytes:
    """The run as a Perfetto trace, not compressed; ValueError as `write_trace`."""
    spans = spans_of(trace)
    tokens = tokens_of(program, spans)
    document = _PerfettoTrace(trace, program, arch)
    # Every span by itself, or stretches of at most about `SLICES`.
    merged, pause = merge(spans, 0), max(1.0, trace.cycles / _FINEST)
    while len(merged.first) > SLICES and pause <= trace.cycles:
        merged, pause = merge(spans, pause), 2 * pause
    document.slices(merged, tokens)
    for counter in counters(trace, program, arch, tokens):
        document.counter(counter)
    return bytes(document.packets.content)


class _Packets:
    """The packets of a trace. Texts that many of them share (names, categories, instructions) are
    sent once with a number, and by their number from then on."""

    def __init__(self) -> None:
        self.content = bytearray()
        # Slow: Perfetto's whole schema.
        self._proto = import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
        self._texts: dict[tuple[str, str], int] = {}
        self._tracks = 0
        self._write(sequence_flags=_CLEARED)

    def _write(self, **fields: Any) -> None:
        packet = self._proto.TracePacket(trusted_packet_sequence_id=1, **fields)
        self.content += self._proto.Trace(packet=[packet]).SerializeToString()

    def track(self, **fields: Any) -> int:
        """A new track's number; the viewer shows tracks in the order in which they come."""
        self._tracks += 1
        numbers = {"uuid": self._tracks, "sibling_order_rank": self._tracks}
        self._write(track_descriptor=numbers | fields)
        return self._tracks

    def event(self, track: int, time: int, kind: int, **fields: Any) -> None:
        """What happens on a track at `time`, in nanoseconds; in order of time."""
        event = {"type": kind, "track_uuid": track, **fields}
        self._write(timestamp=time, sequence_flags=_INCREMENTAL, track_event=event)

    def number(self, kind: str, text: str) -> int:
        """The number of `text` among what Perfetto's `InternedData` calls `kind`."""
        known = self._texts.get((kind, text))
        if known is not None:
            return known
        number = self._texts[kind, text] = len(self._texts) + 1
        entry = {"iid": number, **({"str": text.encode()} if kind == _TEXTS else {"name": text})}
        self._write(interned_data={kind: [entry]}, sequence_flags=_INCREMENTAL)
        return number

    def counted(self, name: str, value: int) -> dict[str, int]:
        """An argument of a slice that is a whole number."""
        return {"name_iid": self.number(_ARGUMENTS, name), "uint_value": value}


class _PerfettoTrace:
    """A trace that is being written, with the tracks it has so far."""

    def __init__(self, trace: Trace, program: Program, arch: Arch) -> None:
        self.packets = _Packets()
        self._trace, self._program = trace, program
        self._sites = [stream.sites for stream in program.expanded]
        self._spans = spans_of(trace)
        self._nanoseconds = 1e9 / arch.clock
        names = {CHIP: f"{arch.name}: {program.name}"}
        names |= {core: f"core {core}" for core in range(len(program.cores))}
        self._processes = {
            core: self.packets.track(
                process={"pid": _pid(core), "process_name": name}, child_ordering=_EXPLICIT
            )
            for core, name in names.items()
        }
        self._folders: dict[tuple[int, str], int] = {}
        self._headings: dict[tuple[int, int], dict[str, Any]] = {}

    def slices(self, merged: Merged, tokens: Sequence[TokenUse]) -> None:
        """All slices of all engines, with the arrows between them."""
        spans, packets = self._spans, self.packets
        leaving, arriving = self._arrows(merged, tokens)
        start, end = self._times(spans.start[merged.first]), self._times(merged.end)
        sums, tiles = _sums(merged, spans), spans.occurrence[merged.first].tolist()
        core, engine = spans.core[merged.first], spans.engine[merged.first]
        threads: dict[tuple[int, int], int] = {}
        for index in np.lexsort((np.arange(len(core)), engine, core)).tolist():
            at = int(core[index]), int(engine[index])
            if at not in threads:
                threads[at] = packets.track(thread={
                    "pid": _pid(at[0]), "tid": _FIRST_THREAD + len(threads),
                    "thread_name": self._trace.engine_names[at[1]],
                })  # fmt: skip
            heading = self._heading(int(merged.first[index]))
            arguments = [
                *heading["debug_annotations"],
                packets.counted("tile", tiles[index]),
                *(packets.counted(n, values[index]) for n, values in sums.items() if values[index]),
            ]
            flows = {
                "flow_ids": leaving.get(index, []),
                "terminating_flow_ids": arriving.get(index, []),
            }
            words = heading | {"debug_annotations": arguments} | flows
            packets.event(threads[at], start[index], _BEGIN, **words)
            packets.event(threads[at], end[index], _END)

    def counter(self, counter: Counter) -> None:
        at = counter.core, counter.folder
        if at not in self._folders:
            parent = self._processes[counter.core]
            self._folders[at] = self.packets.track(name=counter.folder, parent_uuid=parent)
        unit = {"unit_name": UNITS[counter.folder]}
        parent = self._folders[at]
        track = self.packets.track(name=counter.name, parent_uuid=parent, counter=unit)
        for time, value in zip(self._times(counter.times), counter.values.tolist(), strict=True):
            self.packets.event(track, time, _SAMPLE, double_counter_value=value)

    def _times(self, cycles: Counts) -> list[int]:
        """Nanoseconds."""
        times: list[int] = np.rint(cycles * self._nanoseconds).astype(np.int64).tolist()
        return times

    def _heading(self, span: int) -> dict[str, Any]:
        """What all slices say that begin with the instruction of `span`."""
        at = int(self._spans.stream[span]), int(self._spans.site[span])
        if at not in self._headings:
            site, packets = self._sites[at[0]][at[1]], self.packets
            origins, number = self._program.origins, site.instruction.origin
            origin = origins[number] if number < len(origins) else Origin("", 0, "")
            turns = "".join(f"loop {name} {count}: " for name, count in site.repeats)
            text = packets.number(_TEXTS, turns + print_item(site.instruction))
            name = packets.number(_ARGUMENTS, "instruction")
            instruction = {"name_iid": name, "string_value_iid": text}
            self._headings[at] = {
                "name_iid": packets.number("event_names", origin.node or site.instruction.MNEMONIC),
                "category_iids": [packets.number("event_categories", origin.kind or "none")],
                "debug_annotations": [instruction, packets.counted("group", origin.group)],
            }
        return self._headings[at]

    def _arrows(self, merged: Merged, tokens: Sequence[TokenUse]) -> tuple[Arrows, Arrows]:
        """The arrows that leave each slice, and those that end at it: who let whom start."""
        before, behind = _neighbours(self._spans, merged.member)
        pairs = [dependences(use) for use in tokens]
        leaving, arriving = Arrows(), Arrows()
        if not pairs:
            return leaving, arriving
        every = np.concatenate(pairs)
        ends = np.stack((before[every[:, 0]], behind[every[:, 1]]), axis=1)
        ends = ends[(ends[:, 0] >= 0) & (ends[:, 1] >= 0) & (ends[:, 0] != ends[:, 1])]
        start = self._spans.start[merged.first]
        ends = ends[start[ends[:, 0]] <= start[ends[:, 1]]]
        for number, (giver, taker) in enumerate(np.unique(ends, axis=0).tolist(), 1):
            leaving.setdefault(giver, []).append(number)
            arriving.setdefault(taker, []).append(number)
        return leaving, arriving


def _pid(core: int) -> int:
    return core - CHIP + 1


def _sums(merged: Merged, spans: Spans) -> dict[str, list[int]]:
    """What slices say that differs from one to the next, by name: sums over their spans."""
    inside = merged.member >= 0
    begin = spans.start[merged.first]
    sums = {"instructions": merged.instructions, "start cycle": begin, "cycles": merged.end - begin}
    for key, moved in spans.moved.items():
        total = np.bincount(merged.member[inside], moved[inside], len(merged.first))
        sums[f"{key} bytes"] = total.astype(np.int64)
    return {name: values.tolist() for name, values in sums.items()}


def _neighbours(spans: Spans, member: Counts) -> tuple[Counts, Counts]:
    """For each span the slice that it is in; where it only synchronizes, the last one before it on
    its engine, and the next one behind it. -1 where there is none."""
    order = np.lexsort((np.arange(len(member)), spans.engine, spans.core))
    place = np.arange(len(order))
    works = member[order] >= 0
    key = spans.core[order].astype(np.int64) << 32 | spans.engine[order]
    last = np.maximum.accumulate(np.where(works, place, -1))
    ahead = np.minimum.accumulate(np.where(works, place, len(order))[::-1])[::-1]
    found = []
    for near in (last, ahead):
        inside = np.clip(near, 0, len(order) - 1)
        good = (near == inside) & (key[inside] == key)
        slices = np.empty(len(order), np.int64)
        slices[order] = np.where(good, member[order][inside], -1)
        found.append(slices)
    return found[0], found[1]
