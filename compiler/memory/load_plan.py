"""One plan of loads for the whole program: constants lie where their loads can begin early.

Placed group by group, a constant finds its bytes free when the group before is at its end. Yet DRAM
rests while groups compute, and there is room elsewhere. Backwards from the last layer, each load
gets a latest moment; forwards, constants move to bytes that are free from that moment on, or as
early as any are. Nothing else moves. Where layers are equal the plan repeats, so that programs do.
Layers may also load their weights as a whole where the loads can begin in time: the slots of
streamed ones hold back all loads behind them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from compiler.cost.overlap import startup_bytes, sustained_rate
from compiler.errors import DoesNotFit
from compiler.geometry.tile_trace import Unwalkable
from compiler.memory.on_chip import PlaceBuffers, PlacedGroup, Step, load_rows, row_offsets
from compiler.memory.prefetch_addresses import SLACK, LoadPacing
from compiler.numerics.equal_stages import LEAST_EQUAL_LAYERS
from compiler.plan.make_plan import MakePlan, Plan
from compiler.schedule.residency.buffer import GRAIN, Places, TileBuffer
from compiler.schedule_ir.schedule import Schedule
from compiler.target.group_facts import Unholdable
from simmodel.arch.memories import Memory
from simmodel.arch.record import Arch

Fit = tuple[Plan, Places]
_NEVER = 1 << 40
SLOTS = 16
"""Most slots of a buffer."""
AGAIN = 1.5
"""Times its bytes that are loaded of a constant of which some are loaded again."""


def with_early_loads(steps: Sequence[Step], arch: Arch, alloc: PlaceBuffers) -> tuple[Step, ...]:
    """`steps` with their constants where loads can begin early."""
    return _planned(steps, arch, alloc)[0]


def early_loads(
    steps: Sequence[Step], arch: Arch, alloc: PlaceBuffers,
    fit: Callable[[Schedule, Fit | None], Fit],
) -> Iterator[tuple[Step, ...]]:  # fmt: skip
    """`steps` with constants that are loaded as a whole early, in ways of which a run has to say
    which is best; `fit` plans and places a group behind another one.

    before:
        layer 1 streams w1 through two slots; layer 2 waits for w2
    after:
        layer 1 loads w1 as a whole, w2 follows to other bytes while it works
    """
    whole = _loaded_whole(steps, fit)
    _, waits = _planned(whole, arch, alloc)
    # Groups go on streaming where loads would begin too late, or with the layers that need them.
    for streams in dict.fromkeys((frozenset(waits), frozenset(n for n, w in waits.items() if w))):
        pairs = enumerate(zip(steps, whole, strict=True))
        made = [old if n in streams else new for n, (old, new) in pairs]
        yield with_early_loads(made, arch, alloc)
    # Nothing follows the last loads: products may begin with the first of their tiles.
    last = max((n for n, step in enumerate(steps) if _streams(step)), default=-1)
    if last >= 0 and (tiled := _all_tiles(steps[last], made[:last], arch, alloc)) is not None:
        yield with_early_loads([*made[:last], tiled, *made[last + 1 :]], arch, alloc)


def _loaded_whole(steps: Sequence[Step], fit: Callable[[Schedule, Fit | None], Fit]) -> list[Step]:
    """Steps that load their constants as a whole, where they fit so."""
    found: list[Step] = []
    before: Fit | None = None
    for step in steps:
        if not isinstance(step, PlacedGroup):
            found.append(step)
            continue
        made, schedule = step, step.plan.schedule
        if _streams(step):
            layers = tuple(replace(tiled, resident=True) for tiled in schedule.layers)
            with suppress(DoesNotFit, Unwalkable, Unholdable):
                made = PlacedGroup(*fit(replace(schedule, layers=layers), before))
        before = made.plan, made.places
        found.append(made)
    return found


def _streams(step: Step) -> bool:
    """Whether layers of a step without loops load constants tile by tile."""
    if not isinstance(step, PlacedGroup) or step.plan.schedule.loops:
        return False
    return not all(tiled.resident for tiled in step.plan.schedule.layers)


def _all_tiles(
    step: Step, ahead: Sequence[Step], arch: Arch, alloc: PlaceBuffers
) -> PlacedGroup | None:
    """`step` behind those `ahead`, with room for all tiles of its constants; None where there is
    none, or they are loaded again."""
    assert isinstance(step, PlacedGroup)
    before = next((s for s in reversed(ahead) if isinstance(s, PlacedGroup)), None)
    if tiles := _tiles(step.plan):
        with suppress(DoesNotFit, Unwalkable, Unholdable):
            plan = MakePlan(slots=tiles).apply(step.plan.schedule, arch)
            fit = None if before is None else (before.plan, before.places)
            return PlacedGroup(plan, alloc.apply(plan, arch, fit))
    return None


def _tiles(plan: Plan) -> int:
    """Most tiles in which one of its layers loads a constant, each once; 0: in none, or in more
    than buffers can have slots."""
    found, tensors = 0, plan.schedule.group.tensors
    for layer in plan.layers:
        for name, _ in layer.loads:
            buffer = plan.buffers[name]
            turns = math.prod(layer.tiled.turns[: buffer.level])
            if buffer.key is None or tensors[buffer.key[0]].data is None or turns == 1:
                continue
            if turns * buffer.bytes > AGAIN * tensors[buffer.key[0]].stored:
                return 0
            found = max(found, turns)
    return found if found <= SLOTS else 0


class _Load(NamedTuple):
    """Constants that one load brings, once, and that may lie elsewhere."""

    step: int
    """That loads them."""
    buffers: tuple[TileBuffer, ...]
    first: int
    last: int
    """Moments of the program in which layers use them."""
    engine: str
    cycles: float
    parts: tuple[_Load, ...] = ()
    """Small loads of several steps that one is to bring; none: it is one itself."""

    @property
    def rows(self) -> list[tuple[int, TileBuffer]]:
        """Its buffers, each with its step."""
        return [(part.step, b) for part in self.parts or (self,) for b in part.buffers]


def _planned(
    steps: Sequence[Step], arch: Arch, alloc: PlaceBuffers
) -> tuple[tuple[Step, ...], dict[int, bool]]:
    """Steps with their constants where loads can begin early; and those with loads that begin too
    late, with whether any begins no earlier than the layer that needs it."""
    begins = _moments(steps)
    loads = [each for n, step in enumerate(steps) for each in _movable(n, step, begins[n], arch)]
    latest = _latest(steps, loads, arch)
    places = [dict(s.places) if isinstance(s, PlacedGroup) else {} for s in steps]
    late, twins, again = dict[int, bool](), _twins(_kinds(steps, loads)), _again(steps, loads)
    for role, memory in arch.memories.on_chip().items():
        own = [
            (e, wish) for e, wish in zip(loads, latest, strict=True) if e.buffers[0].role == role
        ]
        if own and not alloc.moves_in(memory):
            space = _Space.of(role, memory, steps, begins)
            if GRAIN % memory.alignment == 0:
                own = _gathered(own, steps, arch, again)
            space.move(own, places, late, twins)
    made = (
        replace(step, places=own) if isinstance(step, PlacedGroup) else step
        for step, own in zip(steps, places, strict=True)
    )
    return tuple(made), late


def joined_loads(steps: Sequence[Step], arch: Arch) -> set[tuple[int, str, int]]:
    """Steps, memories and addresses of small constants that come with those of a step before: the
    rows of the plan of loads, where they lie side by side."""
    begins = _moments(steps)
    loads = [each for n, step in enumerate(steps) for each in _movable(n, step, begins[n], arch)]
    again, found = _again(steps, loads), set[tuple[int, str, int]]()
    for role, memory in arch.memories.on_chip().items():
        own = [(load, 0) for load in loads if load.buffers[0].role == role]
        for load, _ in _gathered(own, steps, arch, again) if GRAIN % memory.alignment == 0 else ():
            places = [_address(steps[step], buffer) for step, buffer in load.rows]
            *offsets, _ = row_offsets([buffer for _, buffer in load.rows])
            if load.parts and [at - places[0] for at in places] == offsets:
                rows = zip(load.rows, places, strict=True)
                found |= {(step, role, at) for (step, _), at in rows if step != load.step}
    return found


def _address(step: Step, buffer: TileBuffer) -> int:
    assert isinstance(step, PlacedGroup)
    return step.places[buffer.name][0]


def _gathered(
    wanted: Sequence[tuple[_Load, int]], steps: Sequence[Step], arch: Arch, again: Sequence[int]
) -> list[tuple[_Load, int]]:
    """Loads with their wishes, small ones of several steps as one with the first of them, which
    `Bundles` hold off chip. By `again`, a row that equal layers repeat ends one step before the
    next begins, which is loaded to the same place while that one runs."""

    def size_of(rows: Sequence[tuple[int, TileBuffer]]) -> int:
        return sum(-(-buffer.bytes // GRAIN) * GRAIN for _, buffer in rows)

    found: list[tuple[_Load, int]] = []
    last: dict[str, tuple[int, int]] = {}  # engine -> its latest row, and the step ahead of its end
    for load, wish in wanted:
        number, step = load.step, steps[load.step]
        assert isinstance(step, PlacedGroup)
        most = startup_bytes(arch, arch.copy_[load.engine])
        once = all(b.slots == 1 and not b.level for b in load.buffers)
        if not once or step.plan.schedule.loops or size_of(load.rows) > most:
            found.append((load, wish))
            continue
        at, end = last.get(load.engine, (-1, -1))
        if at >= 0:
            one, early = found[at]
            near = number < end and bool(again[number]) == bool(again[one.step])
            if (near or number == one.step) and size_of((*one.rows, *load.rows)) <= most:
                parts = (*(one.parts or (one,)), load)
                found[at] = one._replace(last=max(one.last, load.last), parts=parts), early
                continue
        own = number if number == end else again[number] - 1 if again[number] else len(steps)
        last[load.engine] = len(found), own
        found.append((load, wish))
    return found


def _again(steps: Sequence[Step], loads: Sequence[_Load]) -> list[int]:
    """By step, the next one of its kind, wherever they are placed, if there are as many as equal
    layers have of which some are not executed; else 0. Behind the last one it stands as far as that
    is behind the one before."""
    kinds = _kinds(steps, loads, placed=False)
    found = [0 for _ in steps]
    for kind in np.flatnonzero(np.bincount(kinds) >= LEAST_EQUAL_LAYERS):
        (numbers,) = np.nonzero(kinds == kind)
        behind = [*numbers[1:], 2 * numbers[-1] - numbers[-2]]
        for number, following in zip(numbers, behind, strict=True):
            found[number] = int(following)
    return found


def _twins(kinds: NDArray[np.int64]) -> list[int]:
    """By step, the latest of those that are like it and so are most steps up to it: where layers
    are equal, the same step of the layer before; -1: there is none."""
    behind = np.zeros(len(kinds) + 1, np.int64)
    found = []
    for number, kind in enumerate(kinds):
        # Of each earlier step, how many steps up to it are like those up to this one.
        behind[1 : number + 1] = (kinds[:number] == kind) * (behind[:number] + 1)
        longest = int(behind[number::-1].argmax())
        found.append(number - 1 - longest if behind[number - longest] else -1)
    return found


def _kinds(
    steps: Sequence[Step], loads: Sequence[_Load], *, placed: bool = True
) -> NDArray[np.int64]:
    """By step, a number that steps have in common with equal buffers, at equal places if `placed`,
    and loads."""
    moved: list[list[str]] = [[] for _ in steps]
    for load in loads:
        moved[load.step] += [load.engine, *(buffer.name for buffer in load.buffers)]
    numbers: dict[object, int] = {}
    kinds = np.empty(len(steps), np.int64)
    for number, step in enumerate(steps):
        form: object = None
        if isinstance(step, PlacedGroup):
            buffers = step.plan.buffers
            rows = (
                (placed and step.places[name], b.role, b.bytes, b.slots, b.first, b.last, b.lasting)
                for name, b in buffers.items()
            )
            order = {name: index for index, name in enumerate(buffers)}
            ends = step.plan.schedule.loops, len(step.plan.layers)
            form = *ends, *rows, *(order.get(name, name) for name in moved[number])
        kinds[number] = numbers.setdefault(form, len(numbers))
    return kinds


def _moments(steps: Sequence[Step]) -> list[int]:
    """The first moment of each step, and the end: a layer takes one, or all of a group in loops."""
    begins = [0]
    for step in steps:
        count = 1
        if isinstance(step, PlacedGroup) and not step.plan.schedule.loops:
            count = len(step.plan.layers)
        begins.append(begins[-1] + count)
    return begins


def _life(step: PlacedGroup, buffer: TileBuffer, begin: int) -> tuple[int, int]:
    """Moments of a step that begins at one in which a buffer is in use."""
    if step.plan.schedule.loops:
        return begin, begin
    if buffer.lasting or buffer.address is not None:
        return begin, begin + len(step.plan.layers) - 1
    return begin + buffer.first, begin + buffer.last


def _movable(number: int, step: Step, begin: int, arch: Arch) -> Iterator[_Load]:
    """Loads of constants of a step, of streamed ones the first, in order of use."""
    if not isinstance(step, PlacedGroup):
        return
    plan, tensors = step.plan, step.plan.schedule.group.tensors
    engines = dict(plan.loads) | {n: e for layer in plan.layers for n, e in layer.loads}
    own = [
        buffer
        for buffer in plan.buffers.values()
        if buffer.name in engines and buffer.key is not None and buffer.address is None
        and tensors[buffer.key[0]].data is not None
    ]  # fmt: skip
    rows = {row[0].name: row for row in _rows(step, own, arch)}
    behind = {buffer.name for row in rows.values() for buffer in row[1:]}
    for buffer in sorted(own, key=lambda b: b.first):
        if buffer.name not in behind:
            row = tuple(rows.get(buffer.name, (buffer,)))
            rate = sustained_rate(arch, arch.copy_[engines[buffer.name]])
            cycles = sum(each.bytes * each.slots for each in row) / rate
            first, last = zip(*(_life(step, each, begin) for each in row), strict=True)
            yield _Load(number, row, min(first), max(last), engines[buffer.name], cycles)


def _rows(
    step: PlacedGroup, buffers: Sequence[TileBuffer], arch: Arch
) -> Iterator[list[TileBuffer]]:
    """Those of `buffers` that lie so that one load brings them."""
    for role in {buffer.role for buffer in buffers}:
        for row in load_rows(step.plan, [b for b in buffers if b.role == role], arch):
            starts = [step.places[buffer.name][0] for buffer in row]
            if [start - starts[0] for start in starts] == row_offsets(row)[:-1]:
                yield row


def _latest(steps: Sequence[Step], loads: Sequence[_Load], arch: Arch) -> list[int]:
    """The latest moment in which each load may begin so that it and all later ones end in time."""
    mine = [0.0] * len(steps)
    for each in loads:
        mine[each.step] += each.cycles
    spare: list[float] = []
    for step, own in zip(steps, mine, strict=True):
        if not isinstance(step, PlacedGroup):
            spare.append(0.0)
            continue
        about = step.plan.schedule.estimate
        if step.plan.schedule.loops:
            spare.append(max(0.0, about.total - about.memory))
            continue
        work = LoadPacing.of(step.plan, arch).work
        left = max(0.0, 1 - max(0.0, about.memory - own) / (sum(work) or 1))
        spare += [cycles * left for cycles in work]
    there = np.concatenate(([0.0], np.cumsum(spare)))
    found, latest = list[int](), math.inf
    for each in reversed(loads):
        latest = min(latest, float(there[each.first])) - SLACK * each.cycles
        moment = int(np.searchsorted(there, latest, side="right")) - 1
        found.append(max(0, min(moment, each.first)))
    return found[::-1]


@dataclass(frozen=True)
class _Space:
    """One memory over the whole program."""

    size: int
    grain: int
    spans: NDArray[np.int64]
    """First byte, end, first and last moment of all that lies in it."""
    rows: Mapping[tuple[int, str], int]
    """Row of each step's buffers."""

    @classmethod
    def of(cls, role: str, memory: Memory, steps: Sequence[Step], begins: Sequence[int]) -> _Space:
        spans, rows = [(0, 0, 0, -1)], dict[tuple[int, str], int]()
        for number, step in enumerate(steps):
            if not isinstance(step, PlacedGroup):
                continue
            begin, end = begins[number], begins[number + 1] - 1
            room = step.plan.schedule.group.room(role, memory.size)
            spans.append((room, memory.size, begin, end))
            for buffer in step.plan.buffers.values():
                if buffer.role == role:
                    rows[number, buffer.name] = len(spans)
                    span = buffer.span(step.places[buffer.name])
                    spans.append((*span, *_life(step, buffer, begin)))
        grain = math.lcm(memory.alignment, min(memory.bank_width, 64), 8)
        return cls(memory.size, grain, np.array(spans, dtype=np.int64), rows)

    def move(
        self, wanted: Sequence[tuple[_Load, int]], places: Sequence[Places],
        late: dict[int, bool], twins: Sequence[int],
    ) -> None:  # fmt: skip
        """Move what loads bring to where that is free by its latest moment, or earlier than now;
        `late` gets the steps with loads that begin later still. By `twins`, what equal layers load
        lies where that of the layer before does: in the second one unless elsewhere it could begin
        earlier, in all behind it if it can begin there before it is needed."""
        moved: dict[int, list[int]] = {}
        begun: dict[str, int] = {}
        left = [*reversed(wanted)]
        while left:
            load, wish = left.pop()
            own = [self.rows[step, buffer.name] for step, buffer in load.rows]
            low = int(self.spans[own, 0].min())
            offsets, size = self.spans[own, 0] - low, int(self.spans[own, 1].max()) - low
            if load.parts:
                *begins, size = row_offsets([buffer for _, buffer in load.rows])
                offsets = np.array(begins)
                low = max(0, min(low, (self.size - size) // self.grain * self.grain))
            # What is over before it is wished for, or begins behind it, is in nobody's way.
            near = (self.spans[:, 3] >= wish) & (self.spans[:, 2] <= load.last)
            near[own] = False
            others = self.spans[near]
            twin, mine = twins[load.step], moved.setdefault(load.step, [])
            like = moved.get(twin, ())
            points, enough = np.array([low]), wish
            if len(mine) < len(like):
                points = np.array([like[len(mine)], low])
                # An engine loads one after another, so no earlier than what it loads before.
                before = begun.get(load.engine, 0) if twins[twin] < 0 else load.first
                enough = max(wish, min(before, load.first - 1))
            starts = self._starts(points, size, load, wish, others)
            if load.parts or starts[0] > enough:
                points = np.concatenate((points, self._beside(others, size)))
                starts = self._starts(points, size, load, wish, others)
            best = 0 if starts[0] <= enough else int(starts.argmin())
            start, at = int(starts[best]), int(points[best])
            if load.parts and start > max(0, load.first - 1):  # no room for all of them
                left += [(part, min(wish, part.first)) for part in load.parts[::-1]]
                continue
            mine.append(at)
            begun[load.engine] = start
            for (step, buffer), row, offset in zip(load.rows, own, offsets, strict=True):
                by = at + int(offset) - int(self.spans[row, 0])
                address, pitch = places[step][buffer.name]
                places[step][buffer.name] = address + by, pitch
                self.spans[row, :2] += by
                self.spans[row, 2] = start
                if not load.parts:
                    self.spans[row, 3] = load.last
            if start > enough:
                late[load.step] = late.get(load.step, False) or start >= load.first

    def _beside(self, others: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """Where so many bytes lie at an end of the memory or beside one of `others`."""
        grain, ends = self.grain, (0, self.size - size)
        free = np.concatenate((ends, -(-others[:, 1] // grain) * grain, others[:, 0] - size))
        free = np.unique(free // grain * grain)
        return free[(free >= 0) & (free + size <= self.size)]

    @staticmethod
    def _starts(
        points: NDArray[np.int64], size: int, load: _Load, wish: int, others: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The moment from which on the bytes behind each point are free until its last use."""
        low, high, born, dies = others.T
        shared = (low < points[:, None] + size) & (points[:, None] < high)
        clash = (shared & (born <= load.last) & (dies >= load.first)).any(axis=1)
        free = np.where(shared & (dies < load.first), dies + 1, 0).max(axis=1, initial=0)
        return np.where(clash, _NEVER, np.maximum(free, wish))
