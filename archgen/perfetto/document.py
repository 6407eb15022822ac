"""A run as a file that the Perfetto viewer (ui.perfetto.dev) opens; see docs/trace.md.

    counters  memories, bandwidths, queues and tokens over time; who waited for whom
    document  the file: one process for the chip and one for each core, engines as threads

The one idea: a slice is a span of the run, so it can be followed to its instruction. A run with
more spans than a viewer shows fluently is drawn in stretches instead: spans of one node on one
engine, with the pauses between them bridged up to the shortest pause that leaves few enough.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from archgen.outcomes.timeline import Merged, merge, spans_of
from archgen.perfetto.counters import CHIP, UNITS, Counter, counters, dependences, tokens_of
from archgen.process.files import write_bytes
from simmodel.arch.record import Arch
from simmodel.program.assembly import print_item
from simmodel.program.program import Origin, Program
from simmodel.trace import Counts, Spans, Trace
from simmodel.verify.happens_before import TokenUse

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
    document = _Document(trace, program, arch)
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


class _Document:
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
        """One counter."""
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
