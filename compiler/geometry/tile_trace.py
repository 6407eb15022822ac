"""Tile trace of a group: the box of every layer in every tile, inferred from results to inputs.

Each tile is followed backwards through the operators' index maps. A layer computes what later
layers need and do not have yet: with a rolling loop, positions of an earlier tile are kept, so the
first tile is larger and the others are regular.

    tile 0    conv1 rows 0..9     conv2 rows 0..8    conv3 rows 0..7
    tile 1    conv1 rows 10..17   conv2 rows 9..16   conv3 rows 8..15     (kept: 2 rows of each)

Everything is computed in plain numbers, tile by tile; runs of equal tiles become one hardware loop
(`TileTrace.runs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from compiler.errors import CompilerError
from compiler.geometry.boxes import layer_needs
from compiler.schedule_ir.group import Group, ResidentTensor
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import OuterLoop
from compiler.tensor_ir.bounds import Box, TileWindow, clipped, empty, union

FEW = 4
"""Tiles in a run that are no loop: one by one, each can be ordered with its neighbours."""
MOSTLY = 0.75
"""A window of at least this part of a tensor becomes room for all of it, which then stays."""


class Unwalkable(CompilerError):
    """A group cannot be cut like this; says why."""


@dataclass(frozen=True)
class TileStep:
    """One tile of a group."""

    out: Mapping[str, Box]
    """Result -> the box that this tile completes."""
    work: tuple[Box | None, ...]
    """Per layer, what it computes; None: nothing new."""
    holds: Mapping[str, TileWindow]
    """Tensors on chip: those between layers, and tiles of inputs."""

    @cached_property
    def form(self) -> object:
        """Key that is equal for tiles of the same shape at any position."""
        return (
            [None if box is None else [n for _, n in box] for box in self.work],
            {name: hold.form for name, hold in self.holds.items()},
            {name: [n for _, n in box] for name, box in self.out.items()},
        )


@dataclass(frozen=True)
class Repeat:
    """`count` tiles from number `first` on that differ by a constant step."""

    first: int
    count: int


@dataclass(frozen=True)
class TileTrace:
    """All tiles of one core's part of a group."""

    moments: tuple[TileStep, ...]
    """By tile of the innermost outer loop."""
    repeats: int = 1
    """Turns of the loop around that one."""
    strides: Mapping[str, tuple[int, ...]] | None = None
    """Per tensor, what one turn of that loop adds to the positions."""
    rolled: tuple[str, ...] = ()
    """Tensors whose overlap with the next tile is kept."""
    still: frozenset[str] = frozenset()
    """Tensors that are on chip as a whole in all turns."""

    @cached_property
    def alike(self) -> tuple[Repeat, ...]:
        """Tiles in runs of equal form, each the same step behind the one before it."""
        found: list[Repeat] = []
        step: object = None  # of the last run, once it has two tiles
        for number, (this, handed) in enumerate(zip(self.moments, self.handed, strict=True)):
            before = self.moments[number - 1]
            # The first tile stands alone: constants that stay arrive while it is worked on.
            if number > 1 and before.form == this.form and self.handed[number - 1] == handed:
                own, run = _step_difference(before, this), found[-1]
                if run.count == 1 or own == step:
                    found[-1], step = Repeat(run.first, run.count + 1), own
                    continue
            found.append(Repeat(number, 1))
        return tuple(found)

    @cached_property
    def runs(self) -> tuple[Repeat, ...]:
        """Tiles in runs, those that become loops and others.

        Loops around tiles that are no loop would only multiply their code.
        """
        few = FEW if self.repeats == 1 else 1
        return tuple(
            single
            for run in self.alike
            for single in (
                [Repeat(run.first + n, 1) for n in range(run.count)] if run.count <= few else [run]
            )
        )

    @cached_property
    def handed(self) -> tuple[dict[str, tuple[int, int, int]], ...]:
        """By tile, tensor -> the part that it passes on to the next, see `overlap_with_next`.
        Unwalkable if a tile cannot keep its overlap with the next one."""
        found = []
        for now, then in pairwise(moment.holds for moment in self.moments):
            own = {n: overlap_with_next(now[n], then[n]) for n in self.rolled if n in now}
            found.append({name: what for name, what in own.items() if what is not None})
        return (*found, {})

    def movable(self) -> TileTrace:
        """Itself; Unwalkable if a tile cannot keep its overlap with the next one."""
        _ = self.handed
        return self

    def bordered(self, tensor: str) -> bool:
        """Whether any tile reads a border around a tensor."""
        holds = (m.holds[tensor] for m in self.moments if tensor in m.holds)
        return any(any(hold.before) or any(hold.after) for hold in holds)

    def work_sizes(self, layer: int) -> list[tuple[int, ...]]:
        """Sizes of the boxes of a layer's result that tiles compute; empty if none is needed."""
        boxes = [m.work[layer] for m in self.moments]
        return [tuple(n for _, n in box) for box in boxes if box is not None]

    def hold_sizes(self, tensor: str) -> list[tuple[int, ...]]:
        """Sizes of the boxes of a tensor that are on chip, borders included."""
        return [m.holds[tensor].sizes for m in self.moments if tensor in m.holds]


def overlap_with_next(now: TileWindow, then: TileWindow) -> tuple[int, int, int] | None:
    """(dimension, shift, positions): the part that the next tile keeps, whose origin has moved."""
    moved = [d for d, (a, b) in enumerate(zip(now.origin, then.origin, strict=True)) if a != b]
    if not moved:
        return None
    if len(moved) > 1:  # a reader that is ahead of others had wider columns
        raise Unwalkable("tiles move along two dimensions at once")
    (dim,) = moved
    start, size = now.box[dim]
    overlap = start + size - then.origin[dim]
    return (dim, then.origin[dim] - now.origin[dim], overlap) if overlap > 0 else None


def _step_difference(a: TileStep, b: TileStep) -> object:
    return (
        tuple(
            None if x is None or y is None else _box_shift(x, y)
            for x, y in zip(a.work, b.work, strict=True)
        ),
        {n: _box_shift(h.box, b.holds[n].box) for n, h in a.holds.items()},
        {n: _box_shift(box, b.out[n]) for n, box in a.out.items()},
    )


def _box_shift(a: Box, b: Box) -> tuple[int, ...]:
    return tuple([t - s for (s, _), (t, _) in zip(a, b, strict=True)])


def largest(sizes: Iterable[tuple[int, ...]], rank: int) -> tuple[int, ...]:
    """Smallest sizes that contain all `sizes`; one position if there are none."""
    return tuple(max(column) for column in zip((1,) * rank, *sizes, strict=True))


@dataclass
class TraceCache:
    """Needs of layers and boxes, shared by several traces."""

    layers: dict[int, tuple[Layer, dict[Box, Mapping[str, Box]]]] = field(default_factory=dict)
    """By its `id`, a layer and its needs by box."""
    holds: dict[tuple[Box, tuple[int, ...]], TileWindow] = field(default_factory=dict)

    def needs(self, layer: Layer, box: Box) -> Mapping[str, Box]:
        """Boxes of the layer's inputs that `box` of its result needs."""
        _, known = self.layers.setdefault(id(layer), (layer, {}))
        found = known.get(box)
        if found is None:
            found = known[box] = layer_needs(layer, box)
        return found

    def window(self, want: Box, shape: tuple[int, ...]) -> TileWindow:
        """The part of `want` inside a tensor of `shape`, with the border around it."""
        key = want, shape
        found = self.holds.get(key)
        if found is None:
            found = self.holds[key] = clipped(want, shape)
        return found


@dataclass(frozen=True)
class TileTracer:
    """Traces the tiles of one group."""

    group: Group
    inputs: frozenset[str]
    """Inputs of the group that are loaded in tiles."""
    whole: frozenset[str] = frozenset()
    """Tensors whose buffer has room for all of them."""
    memory: TraceCache = field(default_factory=TraceCache)
    core: int = 0
    """Core that is traced: each core has its own slice of resident tensors."""

    def walk(self, loops: Sequence[OuterLoop], part: Box) -> TileTrace:
        """Every tile of `part`, a box of the results; Unwalkable if tiles are not regular."""
        rolling = bool(loops) and loops[-1].rolling
        rolled = (
            tuple(n for n in self.group.internal_readers if n not in self.whole) if rolling else ()
        )
        still = frozenset(self.group.residents)
        if len(loops) < 2:
            moments = self._trace_tiles(loops[-1] if loops else None, part, part)
            return TileTrace(moments, rolled=rolled, still=still).movable()
        outer, inner = loops
        start, extent = part[outer.axis]
        if extent % outer.size:
            raise Unwalkable(f"{outer.size} does not divide {extent}")
        turns = extent // outer.size
        before, after = part[: outer.axis], part[outer.axis + 1 :]
        walks = {
            turn: self._trace_tiles(
                inner, (*before, (start + turn * outer.size, outer.size), *after), part
            )
            for turn in (0, min(1, turns - 1), turns - 1)
        }
        strides = _strides(walks[0], walks[min(1, turns - 1)], still)
        # Positions grow evenly until a border cuts them: what is even at both ends is throughout.
        even = {n: tuple((turns - 1) * s for s in step) for n, step in strides.items()}
        if _strides(walks[0], walks[turns - 1], still) != even:
            raise Unwalkable("the outer loop is not regular")
        return TileTrace(walks[0], turns, strides, rolled, still).movable()

    def _trace_tiles(self, loop: OuterLoop | None, part: Box, whole: Box) -> tuple[TileStep, ...]:
        """The tiles of `part`: a core's whole part, or one turn's share of it."""
        done: dict[str, TileWindow] = {}
        moments: list[TileStep] = []
        on_chip = self._tensors_on_chip(looped=loop is not None)
        for out in self._outs(loop, part):
            out = {**out, **self._kept_outs(out, whole)}
            rolling = loop is not None and loop.rolling
            moments.append(self._moment(out, done, on_chip, rolling=rolling))
            done = {**done, **moments[-1].holds}
        # A buffer with room for everything looks the same to every tile.
        settled = {name: done[name] for name in self.whole if name in done}
        for name, kept in self.group.residents.items():
            settled[name] = TileWindow(kept.slices[self.core], *kept.around(self.core))
        return tuple(replace(m, holds={**m.holds, **settled}) for m in moments)

    def _outs(self, loop: OuterLoop | None, part: Box) -> Iterator[dict[str, Box]]:
        cuts: list[tuple[int, int, int] | None] = [None]
        if loop is not None:
            start, extent = part[loop.axis]
            lows = range(start, start + extent, loop.size)
            cuts = [(loop.axis, low, min(loop.size, start + extent - low)) for low in lows]
        shapes = {name: self.group.tensors[name].shape for name in self.group.results}
        for cut in cuts:
            yield {name: self._cut_result(shape, part, cut) for name, shape in shapes.items()}

    def _kept_outs(self, out: Mapping[str, Box], whole: Box) -> dict[str, Box]:
        """The boxes of resident results that a tile completes: at the edge of the core's part also
        the elements that the core keeps beyond it."""
        found = {}
        for name in self.group.results:
            kept = self.group.residents.get(name)
            if kept is not None and not kept.passed:
                spans = zip(out[name], self.share(name, whole), kept.slices[self.core], strict=True)
                found[name] = tuple(_reaching(*axis) for axis in spans)
        return found

    def share(self, name: str, part: Box) -> Box:
        """The box of a result that goes with `part` of the last one."""
        return self._cut_result(self.group.tensors[name].shape, part, None)

    def _cut_result(
        self, shape: tuple[int, ...], part: Box, cut: tuple[int, int, int] | None
    ) -> Box:
        """The box of a result: cut like the last one where they have the axis in common."""
        last = self.group.tensors[self.group.results[-1]].shape
        box = []
        for axis, extent in enumerate(shape):
            whole = axis >= len(last) or part[axis] == (0, last[axis])
            given = (0, extent) if whole else part[axis]
            if cut is not None and axis == cut[0]:
                given, whole = cut[1:], cut[1:] == (0, last[axis])
            if not whole and extent != last[axis]:
                raise Unwalkable("results of different extents share no loop")
            box.append((0, extent) if whole else given)
        if cut is not None and cut[0] >= len(shape) and cut[1:] != (0, last[cut[0]]):
            raise Unwalkable("a result has no such axis")
        return tuple(box)

    def _moment(
        self, out: Mapping[str, Box], done: Mapping[str, TileWindow], on_chip: Iterable[str], *,
        rolling: bool,
    ) -> TileStep:  # fmt: skip
        wants = dict(out)
        work: list[Box | None] = []
        tensors, made = self.group.tensors, self.group.producer_positions
        for layer in reversed(self.group.layers):
            name = layer.result.name
            want = wants.get(name)
            if want is None:
                work.append(None)
                continue
            # Of a tile that lies in the border altogether there is nothing to compute.
            box = self.memory.window(want, tensors[name].shape).box
            inside = None if empty(box) else box
            if inside is not None and (name in self.whole or rolling):
                inside = _fresh(inside, done.get(name), name in self.whole)
            work.append(inside)
            if inside is None:
                continue
            if name in self.group.residents:
                self._check_resident(name, inside)
            for tensor, need in self.memory.needs(layer, inside).items():
                if tensor in self.group.residents and tensor not in made:
                    self._check_resident(
                        tensor, self.memory.window(need, tensors[tensor].shape).box
                    )
                if tensor in made or tensor in self.inputs:
                    known = wants.get(tensor)
                    wants[tensor] = need if known is None or known == need else union(known, need)
        holds = {}
        for name in on_chip:
            if name in wants:
                holds[name] = self.memory.window(wants[name], tensors[name].shape)
                if name in self.whole:
                    holds[name] = _grown(holds[name], done.get(name))
            elif name in done:
                holds[name] = done[name]
        return TileStep(out, tuple(reversed(work)), holds)

    def _check_resident(self, name: str, box: Box) -> None:
        """Raise Unwalkable unless the core holds `box` of a resident tensor."""
        kept: ResidentTensor = self.group.residents[name]
        if not empty(box) and union(box, kept.slices[self.core]) != kept.slices[self.core]:
            raise Unwalkable(
                f"core {self.core} needs {spans_text(box)} of {name}, of which it keeps "
                f"{spans_text(kept.slices[self.core])}"
            )

    def _tensors_on_chip(self, *, looped: bool) -> dict[str, None]:
        """Tensors that are on chip for a whole tile; results too, so that the next tile hides their
        store."""
        inputs = (name for name in self.group.inputs if name in self.inputs)
        kept = self.group.residents
        results = (name for name in self.group.results if looped or name in kept)
        return dict.fromkeys((*self.group.internal_readers, *inputs, *results))


def _reaching(
    box: tuple[int, int], share: tuple[int, int], kept: tuple[int, int]
) -> tuple[int, int]:
    """One axis of a tile, extended to the resident slice's end if it reaches the end of the core's
    share."""
    low, end = box[0], sum(box)
    low = min(low, kept[0]) if low == share[0] else low
    end = max(end, sum(kept)) if end == sum(share) else end
    return low, end - low


def spans_text(box: Box) -> str:
    """A box as positions: 0:1, 3:8."""
    return ", ".join(f"{start}:{start + size}" for start, size in box)


def _fresh(box: Box, before: TileWindow | None, whole: bool) -> Box | None:
    """The part of `box`, inside its tensor, that the previous tile did not leave; None: nothing."""
    if before is None or empty(before.box):
        return box
    grown = [
        dim
        for dim, ((start, size), (low, extent)) in enumerate(zip(box, before.box, strict=True))
        if start < low or start + size > low + extent
    ]
    if not grown:
        return None
    if len(grown) > 1:
        raise Unwalkable("tiles move along two dimensions at once")
    (dim,) = grown
    start, size = box[dim]
    low, extent = before.box[dim]
    if start < low:
        raise Unwalkable("tiles move backwards")
    first = low + extent if whole else max(start, low + extent)
    return (*box[:dim], (first, start + size - first), *box[dim + 1 :])


def _grown(hold: TileWindow, before: TileWindow | None) -> TileWindow:
    """Contents of a buffer for the whole tensor: everything from the tensor's start up to here."""
    if before is None:
        return hold
    box = union(hold.box, before.box)
    there = union(*(tuple(zip(w.origin, w.sizes, strict=True)) for w in (hold, before)))
    ends = [(low + n, start + size) for (low, n), (start, size) in zip(there, box, strict=True)]
    return TileWindow(
        box,
        tuple(start - low for (low, _), (start, _) in zip(there, box, strict=True)),
        tuple(end - inside for end, inside in ends),
    )


def _strides(
    first: Sequence[TileStep], second: Sequence[TileStep], still: frozenset[str]
) -> dict[str, tuple[int, ...]]:
    """Per tensor, the step of one turn of the outermost loop; raises Unwalkable unless tiles are
    alike."""
    found: dict[str, tuple[int, ...]] = {}
    for a, b in zip(first, second, strict=True):
        if a.form != b.form:
            raise Unwalkable("the outer loop is not regular")
        holds = ((n, hold) for n, hold in a.holds.items() if n not in still)
        moved = {n: _box_shift(hold.box, b.holds[n].box) for n, hold in holds}
        moved |= {n: _box_shift(box, b.out[n]) for n, box in a.out.items()}
        for name, step in moved.items():
            if found.setdefault(name, step) != step:
                raise Unwalkable("the outer loop is not regular")
    return found


def trace_parts(
    group: Group, loops: Sequence[OuterLoop], parts: Sequence[Box], memory: TraceCache,
    only: Sequence[int] | None = None,
) -> tuple[TileTrace, ...]:  # fmt: skip
    """Tile traces of the cores' `parts` of the group's results, of all cores or `only` some. Raises
    Unwalkable if tiles are not regular, or a core needs resident elements of another core."""
    if any(len(kept.slices) != len(parts) for kept in group.residents.values()):
        raise Unwalkable("what stays between groups lies on as many cores as work on it")
    cores = range(len(parts)) if only is None else only
    inputs = frozenset(
        n
        for n in group.inputs
        if group.tensors[n].data is None and loops and n not in group.residents
    )
    plain = [TileTracer(group, inputs, memory=memory, core=c).walk(loops, parts[c]) for c in cores]
    rolling = bool(loops) and loops[-1].rolling
    whole = frozenset(
        name
        for name in (*group.internal_readers, *inputs)
        if name in group.residents
        or any(_still_or_most(w, group, name, rolling=rolling) for w in plain)
    )
    if not whole or not loops:
        return tuple(plain)
    return tuple(TileTracer(group, inputs, whole, memory, c).walk(loops, parts[c]) for c in cores)


def _still_or_most(walked: TileTrace, group: Group, name: str, *, rolling: bool) -> bool:
    """Whether a buffer for the whole tensor is better than one for a tile's part, which may be
    `rolling`."""
    if len(walked.moments) < 2:
        return False
    holds = [m.holds[name] for m in walked.moments if name in m.holds]
    if not holds:
        return False
    if len({hold.origin for hold in holds}) == 1:
        return True
    if not rolling or name not in group.producer_positions:
        return False
    shape = group.tensors[name].shape
    moved = [d for d in range(len(shape)) if len({hold.origin[d] for hold in holds}) > 1]
    return any(max(h.box[d][1] for h in holds) >= MOSTLY * shape[d] for d in moved)
