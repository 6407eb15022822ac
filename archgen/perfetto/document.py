"""The file: one process for the chip and one for each core, engines as threads, levels as counters.

The one idea: a slice is a span of the run, so it can be followed to its instruction. A run with
more spans than a viewer shows fluently is told in stretches instead: spans of one node on one
engine, with the pauses between them bridged up to the shortest pause that leaves few enough.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from archgen.outcomes.timeline import Merged, merge, spans_of
from archgen.perfetto.counters import CHIP, Counter, TokenTimeline, counters, dependences, tokens_of
from archgen.perfetto.packets import Packets, Track, arrows
from archgen.process.files import write_bytes
from simmodel.arch.record import Arch
from simmodel.program.assembly import print_item
from simmodel.program.expand import Site
from simmodel.program.program import Origin, Program
from simmodel.trace import Counts, Spans, Trace

SLICES = 150_000
"""Most slices in a file."""
_FINEST = 1_000_000
"""The first pause that is bridged is this part of the run."""
Sites = Sequence[Sequence[Site]]


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
    sites = [stream.sites for stream in program.expanded]
    tokens = tokens_of(program, spans, sites, arch.front_end.signal.cycles(arch.clock))
    made = _Document(trace, program, arch, sites)
    made.slices(_merge_to_limit(spans, trace.cycles), tokens)
    for counter in counters(trace, program, arch, tokens):
        made.counter(counter)
    return bytes(made.packets)


def _merge_to_limit(spans: Spans, cycles: int) -> Merged:
    """Every span by itself, or stretches of at most about `SLICES`."""
    merged, pause = merge(spans, 0), max(1.0, cycles / _FINEST)
    while len(merged.first) > SLICES and pause <= cycles:
        merged, pause = merge(spans, pause), 2 * pause
    return merged


@dataclass(frozen=True)
class _Links:
    """For each slice the arrows, by number, that leave it and that end at it."""

    leaving: dict[int, list[int]]
    arriving: dict[int, list[int]]


class _Document:
    """A trace that is being written, with the tracks it has so far."""

    def __init__(self, trace: Trace, program: Program, arch: Arch, sites: Sites) -> None:
        self.packets = Packets()
        self._trace, self._program, self._sites = trace, program, sites
        self._spans = spans_of(trace)
        self._nanoseconds = 1e9 / arch.clock
        self._processes: dict[int, tuple[Track, int]] = {
            CHIP: self.packets.process(f"{arch.name}: {program.name}")
        }
        for core in range(len(program.cores)):
            self._processes[core] = self.packets.process(f"core {core}")
        self._folders: dict[tuple[int, str], Track] = {}
        self._said: dict[tuple[int, int], bytes] = {}

    def slices(self, merged: Merged, tokens: Sequence[TokenTimeline]) -> None:
        """All slices of all engines, with the arrows between them."""
        spans, links = self._spans, self._links(merged, tokens)
        start, end = self._times(spans.start[merged.first]), self._times(merged.end)
        bodies = _Bodies(merged, spans)
        core, engine = spans.core[merged.first], spans.engine[merged.first]
        threads: dict[tuple[int, int], bytes] = {}
        for index in np.lexsort((np.arange(len(core)), engine, core)).tolist():
            at = int(core[index]), int(engine[index])
            if at not in threads:
                name = self._trace.engine_names[at[1]]
                _, pid = self._processes[at[0]]
                threads[at] = self.packets.thread(pid, name).event
            body = self._site(int(merged.first[index])) + bodies.of(index, self.packets)
            body += arrows(links.leaving.get(index, ()), links.arriving.get(index, ()))
            self.packets.slice(threads[at], start[index], end[index], body)

    def counter(self, counter: Counter) -> None:
        """One counter."""
        where = counter.core, counter.folder
        if where not in self._folders:
            process, _ = self._processes[counter.core]
            self._folders[where] = self.packets.folder(process, counter.folder)
        track = self.packets.counter(self._folders[where], counter.name, counter.unit).event
        values = counter.values.tolist()
        for time, value in zip(self._times(counter.times), values, strict=True):
            self.packets.sample(track, time, value)

    def _times(self, cycles: Counts) -> list[int]:
        """Nanoseconds."""
        found: list[int] = np.rint(cycles * self._nanoseconds).astype(np.int64).tolist()
        return found

    def _site(self, span: int) -> bytes:
        """What all slices say that begin with the instruction of `span`."""
        spans, packets = self._spans, self.packets
        at = int(spans.stream[span]), int(spans.site[span])
        if at not in self._said:
            site = self._sites[at[0]][at[1]]
            known, number = self._program.origins, site.instruction.origin
            origin = known[number] if number < len(known) else Origin("", 0, "")
            turns = "".join(f"loop {name} {count}: " for name, count in site.repeats)
            self._said[at] = (
                packets.heading(origin.node or site.instruction.MNEMONIC, origin.kind or "none")
                + packets.interned_argument("instruction", turns + print_item(site.instruction))
                + packets.counted("group", origin.group)
            )
        return self._said[at]

    def _links(self, merged: Merged, tokens: Sequence[TokenTimeline]) -> _Links:
        """Arrows from slices to those that waited for their end."""
        before, behind = _neighbours(self._spans, merged.member)
        links = _Links({}, {})
        pairs = [dependences(token, self._spans) for token in tokens]
        if not pairs:
            return links
        found = np.concatenate(pairs)
        ends = np.stack((before[found[:, 0]], behind[found[:, 1]]), axis=1)
        ends = ends[(ends[:, 0] >= 0) & (ends[:, 1] >= 0) & (ends[:, 0] != ends[:, 1])]
        start = self._spans.start[merged.first]
        ends = ends[start[ends[:, 0]] <= start[ends[:, 1]]]
        for number, (giver, taker) in enumerate(np.unique(ends, axis=0).tolist(), 1):
            links.leaving.setdefault(giver, []).append(number)
            links.arriving.setdefault(taker, []).append(number)
        return links


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


class _Bodies:
    """What slices say that differs from one to the next: sums over their spans."""

    def __init__(self, merged: Merged, spans: Spans) -> None:
        inside = merged.member >= 0
        which, size = merged.member[inside], len(merged.first)
        self._tile = spans.occurrence[merged.first].tolist()
        self._counted = {"instructions": merged.instructions.tolist()}
        self._counted["start cycle"] = spans.start[merged.first].tolist()
        self._counted["cycles"] = (merged.end - spans.start[merged.first]).tolist()
        for key, moved in spans.moved.items():
            total = np.bincount(which, moved[inside], size).astype(np.int64)
            self._counted[f"{key} bytes"] = total.tolist()

    def of(self, index: int, packets: Packets) -> bytes:
        """The arguments of one slice; bytes where there are any."""
        body = packets.counted("tile", self._tile[index])
        for name, values in self._counted.items():
            if values[index]:
                body += packets.counted(name, values[index])
        return body
