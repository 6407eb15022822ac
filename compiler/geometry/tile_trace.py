"""Tile trace of a group: the box of every layer in every tile, inferred from results to inputs.

Each tile is followed backwards through the operators' index maps. A layer computes what later
layers need and do not have yet: with a rolling loop, positions of an earlier tile are kept, so the
first tile is larger and the others are regular.

    tile 0    conv1 rows 0..9     conv2 rows 0..8    conv3 rows 0..7
    tile 1    conv1 rows 10..17   conv2 rows 9..16   conv3 rows 8..15     (kept: 2 rows of each)

Everything is computed in plain numbers, layer by layer for all tiles: groups that end alike, and
parts and loops that need the same of a layer, share what follows for it (`TraceCache`). Runs of
equal tiles become one hardware loop (`TileTrace.runs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from itertools import pairwise

from compiler.errors import CompilerError
from compiler.geometry.boxes import layer_needs
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import OuterLoop
from compiler.tensor_ir.bounds import Box, TileWindow, clipped, empty, union, volume
from simmodel.arch.base import Latest
from simmodel.isa.region import cached_property

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


@dataclass(frozen=True, eq=False)
class TileBoxes:
    """A box of one tensor for every tile; None: this tile has none."""

    boxes: tuple[Box | None, ...]

    @cached_property
    def sizes(self) -> tuple[tuple[int, ...] | None, ...]:
        """By tile, sizes on chip, borders included."""
        return tuple([None if box is None else tuple([n for _, n in box]) for box in self.boxes])

    @property
    def forms(self) -> tuple[object, ...]:
        """By tile, a key that is equal for boxes of the same shape at any position."""
        return self.sizes

    @cached_property
    def steps(self) -> tuple[object, ...]:
        """By tile, its step from the tile before; False where that has another form."""
        pairs = zip(pairwise(self.boxes), pairwise(self.forms), strict=True)
        steps = [a == b and (x and y and _box_shift(x, y)) for (x, y), (a, b) in pairs]
        return (False, *steps)

    @cached_property
    def spans(self) -> tuple[frozenset[tuple[int, int]], ...]:
        """By axis, starts and sizes of boxes; nothing where no tile has a box."""
        return tuple(map(frozenset, zip(*filter(None, self.boxes), strict=True)))

    @cached_property
    def largest(self) -> tuple[int, ...]:
        """Smallest sizes that contain all; none where no tile has a box."""
        return tuple([max(1, *axis) for axis in zip(*filter(None, self.sizes), strict=True)])

    @cached_property
    def volume(self) -> int:
        """Elements of all boxes."""
        return sum(volume(box) for box in self.boxes if box is not None)


@dataclass(frozen=True, eq=False)
class TileWindows(TileBoxes):
    """What is on chip of a tensor in every tile, with borders."""

    windows: tuple[TileWindow | None, ...]

    @classmethod
    def of(cls, windows: Sequence[TileWindow | None]) -> TileWindows:
        """With their boxes."""
        return cls(tuple([w.box if w else None for w in windows]), tuple(windows))

    @cached_property
    def sizes(self) -> tuple[tuple[int, ...] | None, ...]:
        """By tile, sizes on chip, borders included."""
        return tuple([w.sizes if w else None for w in self.windows])

    @property
    def forms(self) -> tuple[object, ...]:
        """By tile, a key that is equal for windows of the same shape at any position."""
        return tuple([w.form if w else None for w in self.windows])

    @cached_property
    def origins(self) -> frozenset[tuple[int, ...]]:
        """Positions of the first elements of all tiles, borders included."""
        return frozenset(w.origin for w in self.windows if w is not None)

    @cached_property
    def moving(self) -> tuple[tuple[int, int], ...]:
        """Axes along which tiles move, each with the most positions inside the tensor."""
        starts = enumerate(zip(*self.origins, strict=True))
        boxes = [box for box in self.boxes if box is not None]
        return tuple((d, max(box[d][1] for box in boxes)) for d, own in starts if len({*own}) > 1)

    @cached_property
    def bordered(self) -> bool:
        """Whether any tile reads a border."""
        return any(any(w.before) or any(w.after) for w in self.windows if w is not None)

    @cached_property
    def overlaps(self) -> tuple[tuple[int, int, int] | None, ...]:
        """By tile but the last, see `overlap_with_next`."""
        pairs = pairwise(self.windows)
        return tuple([overlap_with_next(a, b) if a and b else None for a, b in pairs])


@dataclass(frozen=True)
class Repeat:
    """`count` tiles from number `first` on that differ by a constant step."""

    first: int
    count: int


@dataclass(frozen=True)
class TileTrace:
    """All tiles of one core's part of a group."""

    count: int
    """Tiles of the innermost outer loop."""
    work: tuple[TileBoxes, ...]
    """Per layer, what it computes."""
    holds: Mapping[str, TileWindows] = field(default_factory=dict)
    """Tensors on chip: those between layers, and tiles of inputs."""
    out: Mapping[str, TileBoxes] = field(default_factory=dict)
    """Result -> what tiles complete."""
    repeats: int = 1
    """Turns of the loop around that one."""
    strides: Mapping[str, tuple[int, ...]] | None = None
    """Per tensor, what one turn of that loop adds to the positions."""
    rolled: tuple[str, ...] = ()
    """Tensors whose overlap with the next tile is kept."""
    still: frozenset[str] = frozenset()
    """Tensors that are on chip as a whole in all turns."""

    def moment(self, number: int) -> TileStep:
        out = {n: box for n, own in self.out.items() if (box := own.boxes[number]) is not None}
        holds = {n: w for n, own in self.holds.items() if (w := own.windows[number]) is not None}
        return TileStep(out, tuple([own.boxes[number] for own in self.work]), holds)

    def share(self, position: int, result: str) -> Box | None:
        """What all tiles compute of the `result` of the layer at `position`."""
        boxes = list(filter(None, self.work[position].boxes))
        turns = self.repeats - 1
        if turns and self.strides and (steps := self.strides.get(result)):
            boxes += [
                tuple((low + turns * s, n) for (low, n), s in zip(box, steps, strict=True))
                for box in boxes
            ]
        return reduce(union, boxes) if boxes else None

    @cached_property
    def moments(self) -> tuple[TileStep, ...]:
        """By tile of the innermost outer loop."""
        return tuple(map(self.moment, range(self.count)))

    @cached_property
    def alike(self) -> tuple[Repeat, ...]:
        """Tiles in runs of equal form, each the same step behind the one before it."""
        found: list[Repeat] = []
        step: object = None  # of the last run, once it has two tiles
        columns = (*self.work, *self.holds.values(), *self.out.values())
        steps = zip(*(column.steps for column in columns), strict=True)
        for number, (own, handed) in enumerate(zip(steps, self.handed, strict=True)):
            # The first tile stands alone: constants that stay arrive while it is worked on.
            if number > 1 and False not in own and self.handed[number - 1] == handed:
                run = found[-1]
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
        found: list[dict[str, tuple[int, int, int]]] = [{} for _ in range(self.count)]
        for name in filter(self.holds.__contains__, self.rolled):
            for tile, own in enumerate(self.holds[name].overlaps):
                if own is not None:
                    found[tile][name] = own
        return tuple(found)

    def movable(self) -> TileTrace:
        """Itself; Unwalkable if a tile cannot keep its overlap with the next one."""
        _ = self.handed
        return self

    def bordered(self, tensor: str) -> bool:
        """Whether any tile reads a border around a tensor."""
        return tensor in self.holds and self.holds[tensor].bordered

    def renamed(self, names: Mapping[str, str]) -> TileTrace:
        """The same of tensors with other names."""
        strides = self.strides and {names[name]: own for name, own in self.strides.items()}
        return replace(
            self,
            holds={names[name]: own for name, own in self.holds.items()},
            out={names[name]: own for name, own in self.out.items()},
            strides=strides,
            rolled=tuple(names[name] for name in self.rolled),
            still=frozenset(names[name] for name in self.still),
        )


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


def _box_shift(a: Box, b: Box) -> tuple[int, ...]:
    return tuple([t - s for (s, _), (t, _) in zip(a, b, strict=True)])


def _shifts(one: TileBoxes, two: TileBoxes) -> set[tuple[int, ...]]:
    """From the boxes of one to those of the other."""
    pairs = zip(one.boxes, two.boxes, strict=True)
    return {_box_shift(a, b) for a, b in pairs if a is not None and b is not None}


def largest(columns: Iterable[TileBoxes], rank: int) -> tuple[int, ...]:
    """Smallest sizes that contain all boxes; one position if there are none."""
    sizes = filter(None, (column.largest for column in columns))
    return tuple([max(axis) for axis in zip((1,) * rank, *sizes, strict=True)])


LayerTiles = tuple[TileBoxes, Mapping[str, TileBoxes]]
"""What one layer computes, tile by tile, and the boxes of its inputs that it needs for that."""


class TraceCache:
    """What layers need for columns of boxes, shared by several traces. Equal columns are one, so
    that it stands for itself in the keys of others."""

    def __init__(self) -> None:
        self.window, self.column = cache(clipped), cache(TileBoxes)
        self.union, self.on_chip = cache(self._union), cache(self._on_chip)
        self.same = cache(lambda window, count: TileWindows.of([window] * count))
        self._layer = Latest[Layer, Callable[..., LayerTiles]](
            lambda own: cache(partial(self._layer_tiles, own, cache(partial(layer_needs, own)))),
            None,
        )

    def layer(self, layer: Layer, want: TileBoxes, whole: bool, kept: bool) -> LayerTiles:
        """What a layer does for tiles that `want` boxes of its result, of which those before may
        have left some: there is room for the `whole` result, or an overlap is `kept`."""
        return self._layer(layer)(want, whole, kept)

    def _layer_tiles(
        self, layer: Layer, needs: Callable[[Box], Mapping[str, Box]], want: TileBoxes,
        whole: bool, kept: bool,
    ) -> LayerTiles:  # fmt: skip
        shape = layer.result.shape
        before = (None, *self.on_chip(want, shape, whole).windows) if whole or kept else ()
        boxes: list[Box | None] = []
        reads: dict[str, list[Box | None]] = {}
        for tile, wanted in enumerate(want.boxes):
            # Of a tile that lies in the border altogether there is nothing to compute.
            box = None if wanted is None else self.window(wanted, shape).box
            if box is not None and empty(box):
                box = None
            if box is not None and before:
                box = _fresh(box, before[tile], whole)
            boxes.append(box)
            for name, need in needs(box).items() if box is not None else ():
                reads.setdefault(name, [None] * len(want.boxes))[tile] = need
        columns = {name: self.column(tuple(own)) for name, own in reads.items()}
        return self.column(tuple(boxes)), columns

    def _union(self, one: TileBoxes, two: TileBoxes) -> TileBoxes:
        """By tile, what contains the boxes of both."""
        pairs = zip(one.boxes, two.boxes, strict=True)
        return self.column(tuple([union(a, b) if a and b else a or b for a, b in pairs]))

    def _on_chip(self, want: TileBoxes, shape: tuple[int, ...], whole: bool) -> TileWindows:
        """Windows of a tensor of `shape` of which tiles `want` boxes; what no tile asks for stays.
        With room for the `whole` tensor, so does everything that was there before."""
        found: list[TileWindow | None] = []
        last: TileWindow | None = None
        for box in want.boxes:
            if box is not None:
                window = self.window(box, shape)
                last = _grown(window, last) if whole else window
            found.append(last)
        return TileWindows.of(found)


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
            traced = self._trace_tiles(loops[-1] if loops else None, part, part)
            return replace(traced, rolled=rolled, still=still).movable()
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
        return replace(
            walks[0], repeats=turns, strides=strides, rolled=rolled, still=still
        ).movable()

    def _trace_tiles(self, loop: OuterLoop | None, part: Box, whole: Box) -> TileTrace:
        """The tiles of `part`: a core's whole part, or one turn's share of it."""
        memory, tensors, made = self.memory, self.group.tensors, self.group.producer_positions
        out = {name: self._out_boxes(name, loop, part, whole) for name in self.group.results}
        count = len(out[self.group.results[-1]].boxes)
        rolling = loop is not None and loop.rolling
        wants, work = dict(out), list[TileBoxes]()
        for layer in reversed(self.group.layers):
            name = layer.result.name
            if name not in wants:
                work.append(memory.column((None,) * count))
                continue
            does, needs = memory.layer(layer, wants[name], name in self.whole, rolling)
            work.append(does)
            if self.group.residents:
                read = {n: own for n, own in needs.items() if n not in made}
                self._check_residents({name: does, **read})
            for tensor, need in needs.items():
                if tensor in made or tensor in self.inputs:
                    known = wants.get(tensor)
                    wants[tensor] = need if known is None else memory.union(known, need)
        holds = {}
        for name in self._tensors_on_chip(looped=loop is not None):
            if name in wants:
                room = name in self.whole
                holds[name] = memory.on_chip(wants[name], tensors[name].shape, room)
                if room:  # a buffer with room for everything looks the same to every tile
                    holds[name] = memory.same(holds[name].windows[-1], count)
        for name, kept in self.group.residents.items():
            window = TileWindow(kept.slices[self.core], *kept.around(self.core))
            holds[name] = memory.same(window, count)
        return TileTrace(count, tuple(reversed(work)), holds, out)

    def _out_boxes(self, name: str, loop: OuterLoop | None, part: Box, whole: Box) -> TileBoxes:
        """The boxes of a result that tiles of `part` complete: of a resident one, tiles at the
        edge of the core's part, the `whole`, also complete what the core keeps beyond it."""
        cuts: list[tuple[int, int, int] | None] = [None]
        if loop is not None:
            start, extent = part[loop.axis]
            lows = range(start, start + extent, loop.size)
            cuts = [(loop.axis, low, min(loop.size, start + extent - low)) for low in lows]
        shape, kept = self.group.tensors[name].shape, self.group.residents.get(name)
        boxes = [self._cut_result(shape, part, cut) for cut in cuts]
        if kept is not None and not kept.passed:
            edges = [*zip(self.share(name, whole), kept.slices[self.core], strict=True)]
            boxes = [
                tuple(_reaching(span, *edge) for span, edge in zip(box, edges, strict=True))
                for box in boxes
            ]
        return self.memory.column(tuple(boxes))

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

    def _check_residents(self, touched: Mapping[str, TileBoxes]) -> None:
        """Raise Unwalkable unless the core holds all boxes of resident tensors among these that
        lie inside."""
        for name in self.group.residents.keys() & touched.keys():
            shape, kept = self.group.tensors[name].shape, self.group.residents[name]
            own: Box = kept.slices[self.core]
            for want in touched[name].boxes:
                box = () if want is None else self.memory.window(want, shape).box
                if want is not None and not empty(box) and union(box, own) != own:
                    raise Unwalkable(
                        f"core {self.core} needs {spans_text(box)} of {name}, of which it keeps "
                        f"{spans_text(own)}"
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
    first: TileTrace, second: TileTrace, still: frozenset[str]
) -> dict[str, tuple[int, ...]]:
    """Per tensor, the step of one turn of the outermost loop; raises Unwalkable unless tiles are
    alike."""
    if (
        first.holds.keys() - still != second.holds.keys() - still
        or first.out.keys() != second.out.keys()
    ):
        raise Unwalkable("the outer loop is not regular")
    moved: dict[str, tuple[TileBoxes, TileBoxes]] = {
        n: (own, second.holds[n]) for n, own in first.holds.items() if n not in still
    }
    moved |= {n: (own, second.out[n]) for n, own in first.out.items()}
    pairs = (*zip(first.work, second.work, strict=True), *moved.values())
    steps = {name: _shifts(*pair) for name, pair in moved.items()}
    if any(a.forms != b.forms for a, b in pairs) or any(len(own) > 1 for own in steps.values()):
        raise Unwalkable("the outer loop is not regular")
    return {name: step for name, own in steps.items() for step in own}


def trace_parts(
    group: Group, loops: Sequence[OuterLoop], parts: Sequence[Box], memory: TraceCache,
    only: Sequence[int] | None = None,
) -> tuple[TileTrace, ...]:  # fmt: skip
    """Tile traces of the cores' `parts` of the group's results, of all cores or `only` some. Raises
    Unwalkable if tiles are not regular, or a core needs resident elements of another core."""
    for name, kept in group.residents.items():
        if (lies := len(kept.slices)) != (work := len(parts)):
            said = f"{name} stays in parts for {lies} cores, but {work} work on it"
            raise Unwalkable(f"{said}: in a tree its home has as many `core` lines as the step")
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
    if walked.count < 2 or name not in walked.holds:
        return False
    held = walked.holds[name]
    if len(held.origins) == 1:
        return True
    if not rolling or name not in group.producer_positions:
        return False
    shape = group.tensors[name].shape
    return any(widest >= MOSTLY * shape[axis] for axis, widest in held.moving)
