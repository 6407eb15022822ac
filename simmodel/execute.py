"""The executor runs a program's own instructions on bytes, at their own addresses.

Every memory is one numpy array of bytes, as long as the program needs; an operand is a strided view
of it. Instructions run in an order that queues, tokens and barriers allow, so the result is that of
any timing of the machine, provided that `simmodel.verify` accepts the program.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simmodel.arch.base import OFF_CHIP
from simmodel.arch.dtype import NUMPY, Array, pack, unpack
from simmodel.arch.element_types import is_float
from simmodel.arch.lazy_array import in_pieces
from simmodel.arch.record import Arch
from simmodel.errors import HostFailed, NoSuchRow, NotRunnable
from simmodel.isa import HostCall, Instruction, View
from simmodel.isa.base import decode, encode
from simmodel.isa.region import Operand, cached_property
from simmodel.program.program import Constant, Place, Port, Probe, Program, TensorSlice, places
from simmodel.verify.happens_before import Choose, Timeline, sequence, timeline
from simmodel.verify.overlap import legal_edges, touched_ends

Bytes = NDArray[np.uint8]
Host = Callable[[bytes, list[Array]], list[Array]]
"""Runs a payload of the program on inputs and returns its outputs."""
Step = Callable[[int], None]
"""Executes one occurrence of a site."""


@dataclass(frozen=True)
class Skip:
    """Groups of a program whose instructions do nothing."""

    groups: frozenset[int] = frozenset()
    given: Mapping[str, Array] = field(default_factory=dict)
    """Raw values of probes of theirs, which are written when the groups would have ended."""

    def idle(self, line: Timeline) -> list[bool]:
        """Of each site, whether it does nothing."""
        origins = [origin.group in self.groups for origin in line.program.origins]
        return [bool(self.groups) and origins[site.instruction.origin] for site in line.sites]


EVERYTHING = Skip()
"""Nothing is skipped."""


class Run:
    """Results of a program by name, in the shapes and types of the ports: it is executed as far as
    somebody asks.

    Args:
        parts: goes on with each turn, and gives the values of probes that are complete by then.
        results: the outputs, once there are no more.
    """

    def __init__(
        self, parts: Iterator[Mapping[str, Array]], results: Callable[[], dict[str, Array]]
    ) -> None:
        self._parts, self._results = parts, results
        self._complete: dict[str, Array] = {}

    def take(self, name: str) -> Array:
        """Values of a probe as soon as they are complete, which are handed out once."""
        while name not in self._complete:
            self._complete |= next(self._parts)
        return self._complete.pop(name)

    @cached_property
    def probed(self) -> dict[str, Array]:
        """Values of all probes that nobody has taken."""
        for part in self._parts:
            self._complete |= part
        return self._complete

    @cached_property
    def outputs(self) -> dict[str, Array]:
        """Outputs when the program has ended."""
        _ = self.probed
        return self._results()


def execute(
    program: Program, inputs: Mapping[str, Array], arch: Arch, host: Host | None = None,
    order: Choose | None = None,
) -> dict[str, Array]:  # fmt: skip
    """The outputs of `run`."""
    return run(program, inputs, arch, host, order=order).outputs


def run(
    program: Program, inputs: Mapping[str, Array], arch: Arch, host: Host | None = None,
    probes: Sequence[Probe] = (), skip: Skip = EVERYTHING, order: Choose | None = None,
) -> Run:  # fmt: skip
    """Prepare to execute `program`.

    Args:
        program: a verified program for `arch`.
        inputs: one array for each input port, in the port's shape.
        host: runs the payloads of host calls; needed when there are any.
        probes: values to read as soon as they are complete; their bytes may be used again later.
        skip: what is not executed.
        order: picks the queue that goes on (`simmodel.verify.happens_before.random_order`);
            default: a fixed order.

    Raises:
        Stuck: nothing can go on; the message says who waits for what.
        NotRunnable: an instruction breaks its contract or reaches beyond a memory.
        HostFailed: a payload's results do not fit the host call.
        NoSuchRow: an index in the data names no row of what it is to pick from.
        ValueError: inputs do not match the ports.
    """
    line = timeline(program)
    idle = skip.idle(line)
    memories = allocate(line, arch, any(idle))
    for port in program.inputs:
        _place_input(port, inputs, memories)
    edges = legal_edges(line, arch)
    sites = range(len(line.sites))
    steps = [None if idle[s] else _site_effect(line, s, arch, memories, host) for s in sites]
    probed = _watch(steps, line, probes, arch, memories, skip.given)
    sequence_of_sites = sequence(line, edges, order)
    order_of_sites, turns = line.site[sequence_of_sites], line.turn[sequence_of_sites].tolist()
    seen = [port.operand for port in program.outputs]
    seen += [piece.operand for probe in probes for piece in probe.slices]
    begins, ends = _constants_in_use(line, order_of_sites, seen, idle)
    for constant in begins.pop(0, ()):  # also where there is no instruction to come first
        _put(constant, memories[constant.memory, 0])

    def parts() -> Iterator[dict[str, Array]]:
        for position, (site, turn) in enumerate(zip(order_of_sites.tolist(), turns, strict=True)):
            for constant in begins.get(position, ()):
                _put(constant, memories[constant.memory, 0])
            try:
                if (step := steps[site]) is not None:
                    with np.errstate(all="ignore"):  # as the machine: numbers overflow silently
                        step(turn)
            except NoSuchRow as wrong:
                raise _of_node(wrong, program, line.sites[site].instruction) from None
            for each in ends.get(position, ()):  # before anyone computes with what is probed
                _give_back(memories[each.memory, 0], each)
            if probed:
                yield dict(probed)
                probed.clear()

    def results() -> dict[str, Array]:
        return _sized(program, {p.name: _read_output(p, memories) for p in program.outputs})

    return Run(parts(), results)


def _of_node(wrong: NoSuchRow, program: Program, instruction: Instruction) -> NoSuchRow:
    """`wrong` with the node whose instruction met it."""
    origin = dict(enumerate(program.origins)).get(instruction.origin)
    node = "" if origin is None else f"{origin.node} ({origin.kind})"
    return NoSuchRow(wrong.index, wrong.rows, node)


def _put(constant: Constant, memory: Bytes) -> None:
    for cut, piece in in_pieces(constant.data):
        raw = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
        start = constant.address + cut.start * (raw.size // max(1, cut.stop - cut.start))
        memory[start : start + raw.size] = raw


_BLOCK = 1 << 22
"""Bytes of a constant that are given back together."""


@dataclass(frozen=True)
class _Stretch:
    """Bytes of a memory off chip, from the first one to the end."""

    memory: str
    low: int
    end: int


def _constants_in_use(
    line: Timeline, order: NDArray[np.integer[Any]], seen: Sequence[Operand], idle: Sequence[bool]
) -> tuple[dict[int, list[Constant]], dict[int, list[_Stretch]]]:
    """By position in the `order` of sites, constants that are touched there for the first time, and
    parts of them that nobody touches behind it. Those in the bytes `seen` from outside are there
    from the start to the end; `idle` sites touch nothing."""
    table, (lowest, highest) = line.operands, line.operands.reaches
    times = np.argsort(order, kind="stable")  # of each site, one site after another
    sites = np.searchsorted(order[times], np.arange(len(line.sites) + 1))
    memories = np.array([kind.memory for kind, _ in table.kinds], np.str_)[table.kind]
    memories[np.array(idle, np.bool_)[table.site]] = ""
    begin: dict[int, list[Constant]] = {}
    over: dict[int, list[_Stretch]] = {}
    for constant in line.program.constants:
        start, end = constant.address, constant.address + constant.data.nbytes
        if start == end:
            continue
        touched = (lowest < end) & (highest > start) & (memories == constant.memory)
        rows = [
            (each.bounds[0], each.bounds[1], time)
            for each in seen
            if each.memory == constant.memory and each.bounds[0] < end and each.bounds[1] > start
            for time in (0, len(order))
        ]
        parts = [np.array(rows, np.int64).reshape(-1, 3).T]
        for number in np.flatnonzero(touched).tolist():
            when = times[sites[table.site[number]] : sites[table.site[number] + 1]]
            first = table.starts[number]
            own, span = table.address[first : first + len(when)], table.kinds[table.kind[number]]
            parts.append(np.stack([own + span[0].span[0], own + span[0].span[1], when]))
        lows, ends, when = np.concatenate(parts, axis=1)
        if not len(when):
            continue
        begin.setdefault(int(when.min()), []).append(constant)
        cuts = np.arange(start, end, _BLOCK)
        last = np.full(len(cuts), when.min())
        nearest = np.clip((lows - start) // _BLOCK, 0, len(cuts) - 1)
        farthest = np.clip((ends - 1 - start) // _BLOCK, 0, len(cuts) - 1)
        for step in range(int((farthest - nearest).max()) + 1):
            np.maximum.at(last, np.minimum(nearest + step, farthest), when)
        for low, time in zip(cuts.tolist(), last.tolist(), strict=True):
            over.setdefault(time, []).append(_Stretch(constant.memory, low, min(low + _BLOCK, end)))
    return begin, over


def _give_back(memory: Bytes, part: _Stretch) -> None:
    """Return to the system the pages of a `part` of a memory that nobody reads again."""
    first = -(-part.low // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = part.end // mmap.PAGESIZE * mmap.PAGESIZE - first
    held = memory.base.obj if isinstance(memory.base, memoryview) else None
    if pages > 0 and isinstance(held, mmap.mmap):
        held.madvise(mmap.MADV_DONTNEED, first, pages)
        with suppress(AttributeError, OSError):  # of shared pages, on Linux
            held.madvise(mmap.MADV_REMOVE, first, pages)


def _zeros(size: int, partly: bool) -> Bytes:
    """Bytes that take as many pages as are written. Of private pages a bound on the data of a
    process counts all, of shared ones none: a program that is executed `partly` writes few."""
    kind = mmap.MAP_SHARED if partly else mmap.MAP_PRIVATE
    try:
        return np.frombuffer(mmap.mmap(-1, size, kind | mmap.MAP_ANONYMOUS), np.uint8)
    except OSError as refused:
        raise MemoryError(f"{size} bytes of a memory that the program uses") from refused


def allocate(line: Timeline, arch: Arch, partly: bool = False) -> dict[Place, Bytes]:
    """Zeroed arrays, as long as the part of each memory instance that the program touches; it may
    be executed `partly`."""
    table, (low, end) = line.operands, line.operands.reaches
    held = [arch.memories.get(kind.memory) for kind, _ in table.kinds]
    sizes = np.array([-1 if memory is None else memory.size for memory in held], np.int64)
    for number in np.flatnonzero((low < 0) | (end > sizes[table.kind]))[:1].tolist():
        (kind, core), site = table.kinds[table.kind[number]], line.sites[table.site[number]]
        memory = held[table.kind[number]]
        size = f"which has {memory.size}" if memory else f"which {arch.name} lacks"
        raise NotRunnable(
            f"{site.instruction.MNEMONIC} on core {core}: bytes {low[number]}..{end[number]} of "
            f"{kind.memory}, {size}"
        )
    ends = touched_ends(line, arch).items()
    return {spot: _zeros(end, partly and spot[0] in OFF_CHIP) for spot, end in ends}


def _array_at(operand: Operand, memory: Bytes) -> Callable[[int], Array]:
    """The operand's array at an address; a copy if elements are below a byte."""
    shape, strides, dtype = operand.shape, operand.strides, NUMPY[operand.dtype]

    def unpacked(address: int) -> Array:
        raw, axis = _items(operand, memory, address)
        values = unpack(raw.reshape(*raw.shape[:-2], -1), operand.dtype, operand.shape[axis])
        return np.moveaxis(values, -1, axis)

    if operand.per_item > 1:
        return unpacked
    return lambda address: np.ndarray(shape, dtype, memory, address, strides)


def _items(operand: Operand, memory: Bytes, address: int) -> tuple[Array, int]:
    """The bytes of an operand of which several elements lie together, and the axis along which they
    do, which is the last but one."""
    shape, strides = operand.bytewise
    dims = zip(operand.shape, operand.strides, strict=True)
    axis = next((a for a, (n, s) in enumerate(dims) if n > 1 and s == 1), len(shape) - 1)
    last, step = (*shape, operand.itemsize), (*strides, 1)
    return np.moveaxis(np.ndarray(last, np.uint8, memory, address, step), axis, -2), axis


def _writer(operand: Operand, memory: Bytes) -> Callable[[int, Array], None]:
    """Writes the operand's values at an address, those below a byte too."""
    at = _array_at(operand, memory)

    def put(address: int, values: Array) -> None:
        if operand.per_item == 1:
            at(address)[...] = values
            return
        raw, axis = _items(operand, memory, address)
        raw[...] = pack(np.moveaxis(values, axis, -1), operand.dtype).reshape(raw.shape)

    return put


def _site_effect(
    line: Timeline, site: int, arch: Arch, memories: dict[Place, Bytes], host: Host | None
) -> Step | None:
    """Effect of one occurrence of site `site`, with all lookups done once; None: none."""
    core, operands = line.owners[site], line.sites[site].operands
    instruction = line.sites[site].wide
    if not instruction.writes():
        return None
    spots = [places(arch, operand, core) for operand in operands]
    views = [_array_at(o, memories[s[0]]) for o, s in zip(operands, spots, strict=True)]
    rows = list(zip(*(a.tolist() for a in line.sites[site].addresses), strict=True))
    effect = _host_effect(instruction, line.program, host) or instruction.execute
    keys = [id(operand) for operand in operands]
    # What is written to several places, or is no view of the memory.
    copies = [
        (index, _writer(operand, memories[spot]))
        for index, operand in enumerate(operands)
        if index >= len(instruction.reads())
        for spot in spots[index][operand.per_item == 1 :]
    ]

    def step(turn: int) -> None:
        row = rows[turn]
        arrays = {k: at(x) for k, at, x in zip(keys, views, row, strict=True)}
        effect(lambda operand: arrays[id(operand)])
        for index, put in copies:
            put(row[index], arrays[keys[index]])

    return step


_NO_BYTES = np.empty(0, np.uint8)


class _Watched:
    """A probe, complete when all of its slices are.

    Args:
        probed: gets its values then.
        given: what is written in place of what it would read.
    """

    def __init__(self, probe: Probe, probed: dict[str, Array], given: Array | None) -> None:
        self.probe, self._probed, self._given = probe, probed, given
        self._values: Array | None = None
        self._open = len(probe.slices)

    def read(self, piece: TensorSlice, memory: Bytes) -> None:
        """Take a slice, which is complete."""
        start = piece.operand.address.base
        if self._given is not None:
            _writer(piece.operand, memory)(start, self._given.reshape(piece.operand.shape))
            return
        if self._values is None:
            self._values = np.zeros(self.probe.shape, NUMPY[self.probe.dtype])
        box = tuple(slice(first, first + size) for first, size in piece.box)
        part = self._values[box] if box else self._values
        part[...] = _array_at(piece.operand, memory)(start).reshape(part.shape)
        self._open -= 1
        if not self._open:
            self._probed[self.probe.name], self._values = self._values, None


def _watch(
    steps: list[Step | None], line: Timeline, probes: Sequence[Probe], arch: Arch,
    memories: dict[Place, Bytes], given: Mapping[str, Array],
) -> dict[str, Array]:  # fmt: skip
    """Read each slice of `probes` behind the last write to it of the group that makes it, or write
    there what is `given`."""
    probed: dict[str, Array] = {}
    written = _writes(line, arch, {probe.group for probe in probes})
    ahead: dict[int, list[Callable[[], None]]] = {}
    for probe in probes:
        watched = _Watched(probe, probed, given.get(probe.name))
        for piece in probe.slices:
            (spot,) = places(arch, piece.operand, piece.core)
            low, end = piece.operand.bounds
            sites = {
                site
                for first, last, site in written.get((probe.group, spot), ())
                if first < end and low < last
            }
            read = partial(watched.read, piece, memories.get(spot, _NO_BYTES))
            left = sum(len(line.occurrences[site]) for site in sites)
            if not left:
                read()
            countdown = _Countdown(left, read)
            for site in sites:
                ahead.setdefault(site, []).append(countdown)
    for site, behind in ahead.items():
        steps[site] = _followed(steps[site], behind)
    return probed


class _Countdown:
    """Does something at the last of so many calls."""

    def __init__(self, left: int, then: Callable[[], None]) -> None:
        self._left, self._then = left, then

    def __call__(self) -> None:
        self._left -= 1
        if not self._left:
            self._then()


def _followed(step: Step | None, behind: Sequence[Callable[[], None]]) -> Step:
    """`step` and what is called behind each occurrence of it."""

    def both(turn: int) -> None:
        if step is not None:
            step(turn)
        for each in behind:
            each()

    return both


def _writes(
    line: Timeline, arch: Arch, groups: Collection[int]
) -> dict[tuple[int, Place], list[tuple[int, int, int]]]:
    """By group and memory, what sites write there: the first byte, the end, and the site."""
    table, (low, end) = line.operands, line.operands.reaches
    spots = [places(arch, kind, core) for kind, core in table.kinds]
    group_of = {n: o.group for n, o in enumerate(line.program.origins) if o.group in groups}
    found: dict[tuple[int, Place], list[tuple[int, int, int]]] = {}
    for number in np.flatnonzero(table.write).tolist() if group_of else ():
        site = int(table.site[number])
        group = group_of.get(line.sites[site].instruction.origin)
        if group is None:
            continue
        row = int(low[number]), int(end[number]), site
        for spot in spots[table.kind[number]]:
            found.setdefault((group, spot), []).append(row)
    return found


def _host_effect(
    instruction: Instruction, program: Program, host: Host | None
) -> Callable[[View], None] | None:
    if not isinstance(instruction, HostCall):
        return None
    if host is None:
        raise ValueError("the program calls the host, and `execute` was given no `host`")
    payload = program.payloads[instruction.payload]

    def effect(view: View) -> None:
        results = host(payload, [view(operand).copy() for operand in instruction.inputs])
        targets = [view(operand) for operand in instruction.outputs]
        given = [np.asarray(result) for result in results]
        if [values.size for values in given] != [target.size for target in targets]:
            raise HostFailed(
                f"payload {instruction.payload} gave shapes {[v.shape for v in given]}, the host "
                f"call has places for {[t.shape for t in targets]}"
            )
        for target, values in zip(targets, given, strict=True):
            target[...] = values.reshape(target.shape).astype(target.dtype)

    return effect


def _place_input(port: Port, inputs: Mapping[str, Array], memories: dict[Place, Bytes]) -> None:
    if port.name not in inputs:
        raise ValueError(f"input {port.name!r} is missing; given: {', '.join(inputs) or 'none'}")
    values = np.asarray(inputs[port.name])
    if values.shape != port.shape:
        raise ValueError(f"input {port.name!r} has shape {values.shape}, expected {port.shape}")
    target = _port_array(port, memories)
    values = values.astype(NUMPY[port.dtype], copy=False).reshape(target.shape)
    if _quantized(port):
        encode(values.astype(np.float32), port.operand, target)
    else:
        target[...] = values.astype(target.dtype, copy=False)


def _sized(program: Program, outputs: dict[str, Array]) -> dict[str, Array]:
    """Outputs cut to their actual extents."""
    said = {port.name: port.extents for port in program.outputs if port.extents}
    found = {name: values for name, values in outputs.items() if name not in said.values()}
    for name, extents in said.items():
        shape = outputs[extents].tolist()
        found[name] = outputs[name][: math.prod(shape)].reshape(shape)
    return found


def _read_output(port: Port, memories: dict[Place, Bytes]) -> Array:
    raw = _port_array(port, memories)
    values = decode(raw, port.operand) if _quantized(port) else raw
    result: Array = values.astype(NUMPY[port.dtype]).reshape(port.shape)
    return result


def _port_array(port: Port, memories: dict[Place, Bytes]) -> Array:
    memory = memories[port.operand.memory, 0]
    return _array_at(port.operand, memory)(port.operand.address.base)


def _quantized(port: Port) -> bool:
    """Whether the user's real values are stored as integers with a scale."""
    return is_float(port.dtype) and not is_float(port.operand.dtype)
