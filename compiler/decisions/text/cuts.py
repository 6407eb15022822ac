"""Whether a step of a tree can be cut as it says: parts of cores, tiles, and loops of every layer.

What is checked here is what plan and emission take for granted of schedules, as the search for
tiles never makes others. Everything that is wrong is said at once, with its line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from compiler.cost.multicast import between_cores
from compiler.decisions.text.tree import For, Home, ScheduleStep, Span, StepLayer
from compiler.geometry.clusters import keeps_apart
from compiler.geometry.cuts import recomputing_axes, shared_axes, split_channels, tiled_channels
from compiler.schedule.residency.table import Slicing
from compiler.schedule.tiling.candidates import stays_whole
from compiler.schedule.tiling.elementwise_tiling import free_dims, together
from compiler.schedule.wording import name_of
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import OuterLoop, TileLoop
from compiler.target.array_mapping import kernel_rows, roles
from compiler.tensor_ir.bounds import Box, volume
from compiler.tensor_ir.nest import HostNode
from simmodel.arch.base import near
from simmodel.arch.record import Arch


@dataclass
class Cuts:
    """Reads how one step is cut; `mistakes` has what cannot be."""

    step: ScheduleStep
    group: Group
    arch: Arch
    mistakes: list[str]

    def __post_init__(self) -> None:
        self.last = self.group.layers[-1]
        self.shape = self.last.result.shape
        self.axes = _axes_of(self.last)
        alone = self.group.alone
        self.free = _splittable(self.last) if alone else set(shared_axes(self.group))
        channels = split_channels(self.group)
        self.among = {*self.free, *recomputing_axes(self.group)}
        self.among |= set() if alone or channels is None else {channels}
        tiled = tiled_channels(self.group)
        self.free |= set() if tiled is None else {tiled}

    def parts(self) -> tuple[Box, ...]:
        """The cores' parts of the last result."""
        found = tuple(self._core_part(core) for core in self.step.cores)
        first, stop = self.step.among or (0, len(found))
        if len(found) != stop - first:
            self._say(f"cores {first}:{stop}: {stop - first} cores, {len(found)} parts")
        elif len(found) > self.arch.core_count:
            self._say(f"{len(found)} cores, where {self.arch.name} has {self.arch.core_count}")
        elif not covers(found, self.shape):
            missing = "".join(f"; no core has {said}" for said in self._uncovered_ranges(found))
            wanted = "the cores' parts have to cover the last result, each position once"
            self._say(wanted + missing)
        elif not keeps_apart(self.group, found, self.arch):
            self._say("a cluster would need what lies in another one's shared memory")
        return found

    def loops(self) -> tuple[OuterLoop, ...]:
        """The loops over tiles of the step."""
        found: list[OuterLoop] = []
        for loop in self.step.loops:
            axis = self._find_axis(loop.dim, self.axes, loop.line)
            if axis is None:
                continue
            if axis not in self.free:
                able = self._axis_names(self.free)
                self._say(f"tiles cannot move along {loop.dim}, only along {able}", loop.line)
            if loop.size > self.shape[axis]:
                self._say(f"{loop.dim} has {self.shape[axis]} positions only", loop.line)
            bounds = (0, *loop.stages, len(self.group.layers))
            if any(a >= b for a, b in pairwise(bounds)):
                said = f"numbers that rise, below the step's {bounds[-1]} layers"
                self._say(f"ahead {', '.join(map(str, loop.stages))}: expected {said}", loop.line)
            if loop.stages and loop is not self.step.loops[-1]:
                self._say("ahead is said of the innermost loop", loop.line)
            found.append(OuterLoop(axis, loop.size, loop.rolling, loop.stages))
        self._check_unique_loops(self.step.loops)
        return tuple(found)

    def layer(self, work: StepLayer, layer: Layer, sizes: Sequence[int]) -> tuple[TileLoop, ...]:
        """The loops of one layer, whose largest tile in the step's loops has `sizes`."""
        head, shape = layer.head, layer.result.shape
        dims = _axes_of(layer)
        if layer.product:  # whose result has the head's dimensions, and whose sum may be split
            dims |= {head.dims[dim].name: dim for dim in range(head.rank, len(head.dims))}
        found = []
        for loop in work.loops:
            number = self._find_axis(loop.dim, dims, loop.line)
            if number is None:
                continue
            inside = number >= len(shape)
            extent = head.dims[number].extent if inside else shape[number]
            if loop.size > extent:
                self._say(f"{loop.dim} has {extent} positions only", loop.line)
            found.append(TileLoop(number, loop.size, inside, loop.ahead))
        self._check_unique_loops(work.loops)
        check = _wrong_product if layer.product else _wrong_slabs
        for said in check(layer, {loop.dim: loop.size for loop in found}, sizes, self.arch):
            self._say(said, work.line)
        kinds = [loop.reduction for loop in found]
        if kinds != sorted(kinds):
            self._say("the loop that splits a sum is the innermost", work.line)
        if any(loop.ahead for loop in (found if not layer.product else found[:-1])):
            self._say("ahead is said of the innermost loop of a product", work.line)
        elif self.arch.core_count == 1 and any(loop.ahead for loop in found):
            self._say("ahead is for cores that pass on what they load; there is one", work.line)
        return tuple(found)

    def _axis_names(self, free: Collection[int]) -> str:
        return ", ".join(name for name, axis in self.axes.items() if axis in free) or "none"

    def _core_part(self, core: Sequence[Span]) -> Box:
        for span in core:
            if self.axes.get(span.dim, -1) not in (-1, *self.among):
                said = f"cores cannot be split along {span.dim}, only along "
                self._say(said + self._axis_names(self.among), span.line)
        return core_box(core, self.axes, self.shape, self._say)

    def _uncovered_ranges(self, parts: Sequence[Box]) -> Iterator[str]:
        """Positions of single dimensions that are in no part."""
        for name, axis in self.axes.items():
            end = 0
            for start, size in sorted(part[axis] for part in parts):
                if start > end:
                    yield f"{name} = {end}:{start}"
                end = max(end, start + size)
            if end < self.shape[axis]:
                yield f"{name} = {end}:{self.shape[axis]}"

    def _find_axis(self, name: str, known: dict[str, int], line: int) -> int | None:
        if name not in known:
            self._say(_no_dimension(name, known), line)
        return known.get(name)

    def _check_unique_loops(self, loops: Sequence[For]) -> None:
        names = [loop.dim for loop in loops]
        for name in dict.fromkeys(n for n in names if names.count(n) > 1):
            self._say(f"two loops over {name}", loops[0].line)

    def _say(self, what: str, line: int | None = None) -> None:
        said = f"line {self.step.line if line is None else line}: {what}"
        if said not in self.mistakes:
            self.mistakes.append(said)


def _axes_of(layer: Layer) -> dict[str, int]:
    """Dimensions of a layer's result by name."""
    return {name_of(layer, axis): axis for axis in range(len(layer.result.shape))}


def _no_dimension(name: str, known: Collection[str]) -> str:
    return f"no dimension {name!r}; there are: {', '.join(known)}{near(name, known)}"


def core_box(
    core: Iterable[Span], axes: Mapping[str, int], shape: Sequence[int],
    say: Callable[[str, int], None],
) -> Box:  # fmt: skip
    """A core's part of a result of `shape`; `say` is told what cannot be, and in which line."""
    box = [(0, extent) for extent in shape]
    for span in core:
        axis = axes.get(span.dim)
        if axis is None:
            say(_no_dimension(span.dim, axes), span.line)
        elif not 0 <= span.start < span.stop <= shape[axis]:
            say(f"{span.dim} = {span.start}:{span.stop} is not in 0:{shape[axis]}", span.line)
        else:
            box[axis] = (span.start, span.stop - span.start)
    return tuple(box)


def slicing_of(
    home: Home, parts: Iterable[Group | HostNode], arch: Arch, mistakes: list[str]
) -> Slicing | None:
    """How cores keep a tensor, None where that is not said; `mistakes` has what cannot be."""

    def say(what: str, line: int = home.line) -> None:
        mistakes.append(f"line {line}: {what}")

    layers = [layer for part in parts if isinstance(part, Group) for layer in part.layers]
    maker = next((layer for layer in layers if layer.result.name == home.tensor), None)
    if home.passed and between_cores(arch) is None:
        say(f"no copy engine of {arch.name} passes parts from core to core")
    if not home.cores or not layers or home.tensor not in layers[0].tensors:
        return None
    if len(home.cores) > arch.core_count:
        say(f"{len(home.cores)} cores, where {arch.name} has {arch.core_count}")
    axes = {} if maker is None else _axes_of(maker)
    shape = layers[0].tensors[home.tensor].shape
    return Slicing(tuple(core_box(core, axes, shape, say) for core in home.cores), home.passed)


def covers(parts: Sequence[Box], shape: tuple[int, ...]) -> bool:
    """Whether disjoint boxes fill a tensor."""
    apart = all(
        any(
            low >= other + more or other >= low + size
            for (low, size), (other, more) in zip(a, b, strict=True)
        )
        for n, a in enumerate(parts)
        for b in parts[:n]
    )
    return apart and sum(map(volume, parts)) == math.prod(shape)


def _splittable(layer: Layer) -> set[int]:
    """Axes along which a layer alone may be cut."""
    head = layer.head
    if layer.product:
        return {dim for dim in range(head.rank) if head.dims[dim].extent > 1}
    return set(free_dims(layer))


def _wrong_product(
    layer: Layer, sizes: dict[int, int], box: Sequence[int], arch: Arch
) -> Iterator[str]:
    """What an instruction of the matrix engine cannot walk: it takes a box of rows, lines and
    images, and one position of every other loop."""
    head, found = layer.head, roles(layer.head)
    names = [dim.name for dim in head.dims]
    extents = [*box, *(dim.extent for dim in head.dims[head.rank :])]

    def tile(dim: int) -> int:
        return min(sizes.get(dim, extents[dim]), extents[dim])

    walked = (found.b, found.y, found.x, found.col)
    for dim in range(head.rank):
        if dim not in walked and tile(dim) > 1:
            yield f"{names[dim]} is walked one by one: 'for {names[dim]} 1' is missing"
    for dim in sizes:
        if dim >= head.rank and dim not in (found.k, kernel_rows(head, arch.matrix)):
            yield f"the sum over {names[dim]} cannot be split"
        elif dim == found.k and tile(dim) < extents[dim] and stays_whole(layer):
            yield f"the sum over {names[dim]} is of a length, which may lack its last piece"


def _wrong_slabs(
    layer: Layer, sizes: dict[int, int], box: Sequence[int], arch: Arch
) -> Iterator[str]:
    """Loops along which a layer without a product over channels cannot be cut."""
    free, grains = free_dims(layer), together(layer)
    for dim, size in sizes.items():
        name, unit = name_of(layer, dim), grains.get(dim, 1)
        if dim not in free:
            yield f"{name} cannot be cut in this layer"
        elif size < box[dim] and size % unit:
            yield f"{unit} {name} are computed together: 'for {name}' takes multiples of {unit}"
