"""What several cores load alike in one step is read once: each loads a part and gives it to all.

    core 0                              core 0                           core 1
    for t: load w t                     for t: notify free@0             for t: notify free@1
           product t            =>             w t, first half, @{0,1}          w t, second half
                                               wait full@1                      wait full@0
    core 1 the same                            product t                        product t

The one idea: loads are alike where the same copies stand in the same loops at the same places of
the cores' trees, whatever they are of: weights where cores split rows, maps where they split
columns. Before a core gives its part, the others say that they have room. The step keeps its place
and its engine, so whatever orders the load there orders it as before. Cores meet in the order of
these engines' queues, which is the order of the tree, so one token for each pair of cores does for
the whole program. Where a core has too few tokens for all others, neighbours share loads. Where
parts are so short that each takes as long as the whole, all load it.

Where no load reaches several cores but copies between cores do, each part is loaded as before and
passed on from there. Where cores have nothing between them but a memory that all see, each stores
its part there and copies the others' parts from there:

    core 0                                    core 1
    for t: notify free@0; w t, first half     for t: notify free@1; w t, second half
           wait free@1; store it to shared           wait free@0; store it to shared
           notify full@0                             notify full@1
           wait full@1; the second half              wait full@0; the first half
           product t                                 product t

A core that has begun its part of a load has taken all parts of the one before, as one engine copies
both: so one place in shared memory does for all loads of a buffer. A buffer of `EARLY` slots or
more has as many places there: its parts may be loaded ahead of others' parts of the load before
(`issue_order.loops`), by some cores early and by others late in a step, so that they do not want
DRAM all at once.

Within a core tokens or an interlock keep the order, as of any load; its own part is stored while it
fetches others'. What others write is done by no
instruction of this core, so for the interlock both words to and from them claim the whole buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Annotated, Any

from compiler.codegen.legalize import Names, legal_copy, merged
from compiler.codegen.nodes import (
    EngineStep,
    LoopSegment,
    Node,
    SegmentedLoop,
    Use,
    instructions,
    touched,
)
from compiler.cost.multicast import EARLY, MulticastRoute, find_multicast_route
from compiler.cost.overlap import far_rate
from compiler.passes import Omittable, Share, within
from compiler.schedule.residency.buffer import GRAIN
from simmodel.arch.record import Arch
from simmodel.isa import Await, Claim, Copy, Indirect, Instruction, Item, Sync
from simmodel.isa.region import Address, Operand, contiguous, replace, walk

Path = tuple[int | str, ...]
"""Of a step in a tree: position, then variable, segment and its count, then position, and so on."""


_Standing = tuple[Path, tuple[Item, ...]]
"""Where a step stands, and what it does."""

Stage = tuple[str, int]
"""A place in shared memory: its name, and its first byte."""
Allot = Callable[[str, int], Stage | None]
"""Finds room in shared memory for a buffer's bytes, if there is any."""


@dataclass(frozen=True)
class ShareLoads(Omittable):
    """Read once what several cores load alike.

    before:
        core 0: load w                    core 1: load w
    after:
        core 0: half of w, to both        core 1: the other half, to both
    """

    gain: Annotated[float, within(1)] = 1.5
    """A load is shared where that is so many times as quick: cores that wait for each other lose
    some of it."""
    room: Share = 0.25
    """Part of a shared memory for what is on its way from core to core, where it is their only
    way; tensors between groups have the rest."""

    def multicast_route(self, arch: Arch) -> MulticastRoute | None:
        """How loads reach several cores, if they do."""
        return find_multicast_route(arch, self.gain, self.room) if self.enabled else None

    def staged(self, arch: Arch) -> bool:
        """Whether parts of loads have places in shared memory on their way, which depend on the
        steps around."""
        way = self.multicast_route(arch)
        return way is not None and way.staged

    def apply(
        self, trees: Sequence[list[Node]], arch: Arch, names: Names,
        allot: Allot = lambda buffer, size: None,
    ) -> list[list[Node]]:  # fmt: skip
        """The trees of a step's cores, with shared loads; those that take no part have none."""
        way, users = self.multicast_route(arch), sum(map(bool, trees))
        if way is None or users < 2:
            return list(trees)
        means = _Means(way, arch, users)
        shares = _shares(trees, means, allot)
        if not shares:
            return list(trees)
        cores = (
            _CoreSharing(core, {b: of[core] for b, of in shares.items() if core in of}, means)
            for core in range(len(trees))
        )
        return [core.rewritten(tree, names) for core, tree in zip(cores, trees, strict=True)]


@dataclass(frozen=True)
class _SplitLoad:
    """A load in parts, one for each of the cores that share it."""

    whole: Copy
    axis: int
    own: Mapping[int, Copy]
    """Core -> what it loads for all."""
    spans: Mapping[int, tuple[int, int]]
    """Core -> where that begins and ends along the axis of the target."""

    @property
    def bytes(self) -> int:
        """Of the target."""
        return self.whole.dst.elements * self.whole.dst.itemsize

    def staged(self, base: int, pitch: int) -> Operand:
        """The target as it lies in shared memory from `base` on, each slot in a place of its own if
        these are `pitch` bytes apart: in the same order, so that what is contiguous is so at both
        ends, without gaps."""
        there = self.whole.dst
        order = sorted(range(len(there.shape)), key=lambda axis: -abs(there.strides[axis]))
        dense = contiguous(tuple(there.shape[axis] for axis in order), there.itemsize)
        strides = tuple(dense[order.index(axis)] for axis in range(len(order)))
        ring = there.address.ring
        address = Address(base, (), replace(ring, pitch=pitch) if ring and pitch else None)
        return replace(there, memory="shared", address=address, strides=strides)


@dataclass(frozen=True)
class _Share:
    """A buffer that cores fill alike."""

    cores: tuple[int, ...]
    stage: Stage = ("", 0)
    """Where parts lie in shared memory on their way."""
    pitch: int = 0
    """Bytes between its places there, if it has several."""


@dataclass(frozen=True)
class _Means:
    """What loads are shared with."""

    way: MulticastRoute
    arch: Arch
    users: int
    """Cores that load at the same time."""
    known: dict[object, _SplitLoad | None] = field(default_factory=dict, compare=False)
    """What was made of loads: all cores that share one ask for its parts."""
    cuts: dict[object, int] = field(default_factory=dict, compare=False)
    """Box of a load and the axis along which it is cut -> number."""

    def cut_of(self, load: _SplitLoad) -> int:
        """Number of the cut, the same where equal positions are equal bytes of a slot, and no
        dimension."""
        box = load.whole.dst
        key = box.shape, box.strides, box.address.base, load.axis
        return len(box.shape) + self.cuts.setdefault(key, len(self.cuts))

    def parts(self, items: tuple[Item, ...], cores: tuple[int, ...]) -> _SplitLoad | None:
        key = items, cores
        if key not in self.known:
            self.known[key] = _parts(items, cores, self)
        return self.known[key]


@dataclass(frozen=True)
class Meeting:
    """How a core waits for others before it writes to their memory, and they for what it wrote."""

    engine: str
    """Where it does so, in the order of its queue."""
    origin: int
    arch: Arch
    core: int
    free: str = "free"
    """Token by which a core says that it has room, `full` that its part is there."""
    full: str = "full"

    def telling(self, word: str, cores: Sequence[int]) -> dict[str, Any]:
        """Fields of an instruction that tells `cores`."""
        return {"notifies": ((f"{word}@{self.core}", 1, tuple(cores)),)}

    def awaiting(self, word: str, cores: Sequence[int]) -> dict[str, Any]:
        """Fields of one that waits until `cores` have said so."""
        return {"waits": _words(word, tuple(cores))}

    def sync(self, **fields: Any) -> Sync:
        return Sync(engine=self.engine, origin=self.origin, **fields)

    def items(
        self, own: Sequence[Item], takers: Sequence[int], givers: Sequence[int], place: Operand,
        ahead: Sequence[Item] = (),
    ) -> list[Item]:  # fmt: skip
        """`own`, which gives something to `takers` once these have room, and behind `ahead`; and
        the wait for what `givers` write to `place`. That is done by no instruction of this core, so
        for an interlock both words about it claim all of the place."""

        def room(**fields: Any) -> Sync:
            if self.arch.front_end.sync == "tokens":
                return self.sync(**fields)
            return Claim(engine=self.engine, origin=self.origin, dst=place, **fields)

        items = [room(**self.telling(self.free, givers))] if givers else []  # type: list[Item]
        items += ahead
        if takers:
            items.append(self.sync(**self.awaiting(self.free, takers)))
            items += own
            items.append(self.sync(**self.telling(self.full, takers)))
        return items + ([room(**self.awaiting(self.full, givers))] if givers else [])


@lru_cache(maxsize=1 << 10)
def _words(word: str, cores: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
    return tuple([(f"{word}@{core}", 1) for core in cores])


def _shares(
    trees: Sequence[list[Node]], means: _Means, allot: Allot
) -> dict[str, dict[int, _Share]]:
    """Buffer -> core -> the cores that fill it alike, itself included, where that pays."""
    found: dict[str, dict[int, list[_Standing]]] = {}
    slots = dict[str, int]()
    for core, tree in enumerate(trees):
        for path, leaf in _steps_with_path(tree, ()):
            buffer = _filled(leaf, means.way)
            if buffer is not None and leaf.items:
                found.setdefault(buffer, {}).setdefault(core, []).append((path, leaf.items))
                slots[buffer] = leaf.uses[0].slots
    shares: dict[str, dict[int, _Share]] = {}
    for buffer, by_core in found.items():
        alike: dict[object, list[int]] = {}
        for core, steps in by_core.items():
            near = means.way.staged or any(_reads_near(items, means.arch) for _, items in steps)
            cluster = core // (means.way.seen_by or means.arch.cores) if near else 0
            among = core // (means.way.reach or means.arch.core_count)
            alike.setdefault((cluster, among, *steps), []).append(core)
        sets = {}
        for cores in (cores for cores in alike.values() if len(cores) > 1):
            made = [means.parts(items, tuple(cores)) for _, items in by_core[cores[0]]]
            if any(made):
                sets[tuple(cores)] = max(parts.bytes for parts in made if parts is not None)
        for share in _allocate_shares(buffer, slots[buffer], sets, means, allot):
            shares.setdefault(buffer, {}).update(dict.fromkeys(share.cores, share))
    return shares


def _allocate_shares(
    buffer: str, slots: int, sets: Mapping[tuple[int, ...], int], means: _Means, allot: Allot
) -> Iterator[_Share]:
    """What each of `sets` of cores shares of `buffer`, whose bytes are given, those of a slot."""
    if not means.way.staged:
        yield from map(_Share, sets)
        return
    for places in dict.fromkeys((slots if slots >= EARLY else 1, 1)):
        ends: dict[int, int] = {}
        offsets = {}
        for cores, size in sets.items():
            memory, pitch = cores[0] // means.way.seen_by, -(-size // GRAIN) * GRAIN
            offsets[cores] = ends.get(memory, 0), pitch if places > 1 else 0
            ends[memory] = offsets[cores][0] + places * pitch
        stage = allot(buffer, max(ends.values())) if ends else None
        if stage is not None:
            name, base = stage
            for cores, (offset, pitch) in offsets.items():
                yield _Share(cores, (name, base + offset), pitch)
            return


def _reads_near(items: Sequence[Item], arch: Arch) -> bool:
    """Whether equal addresses are equal bytes for the cores of one cluster alone."""
    shared = arch.memories.shared
    if shared is None or shared.level != "cluster":
        return False
    return any(o.memory == "shared" for item in instructions(items) for o in item.reads())


def _steps_with_path(nodes: Sequence[Node], path: Path) -> Iterator[tuple[Path, EngineStep]]:
    """Every step, and where it stands."""
    for position, node in enumerate(nodes):
        here = (*path, position)
        if isinstance(node, EngineStep):
            yield here, node
            continue
        for number, segment in enumerate(node.segments):
            yield from _steps_with_path(segment.body, (*here, node.variable, number, segment.count))


def _filled(leaf: EngineStep, way: MulticastRoute) -> str | None:
    """The one buffer that a load fills."""
    if leaf.engine != way.load or len(leaf.uses) != 1 or not leaf.uses[0].write:
        return None
    return leaf.uses[0].buffer


@dataclass(frozen=True)
class _CoreSharing:
    number: int
    shares: Mapping[str, _Share]
    """Buffer -> the cores that fill it like this one, itself included."""
    means: _Means

    def rewritten(self, nodes: Sequence[Node], names: Names) -> list[Node]:
        """The same tree with shared loads."""
        if not self.means.way.staged:
            return [made for node in nodes for made in self._node(node, names)]
        made: list[Node] = []
        run: list[EngineStep] = []
        for node in nodes:
            if run and not _may_swap(node, run, self.means.way):
                made += self._loads(run, names)
                run = []
            if isinstance(node, EngineStep) and node.engine == self.means.way.load:
                run.append(node)
            else:
                made += self._node(node, names)
        return made + self._loads(run, names)

    def _loads(self, run: Sequence[EngineStep], names: Names) -> list[Node]:
        """Loads side by side: those that are shared begin first, and end when all others are over
        too, so that others' parts arrive meanwhile."""
        shared = [leaf for leaf in run if _filled(leaf, self.means.way) in self.shares]
        alone = [leaf for leaf in run if leaf not in shared]
        made = [list(self._node(leaf, names)) for leaf in shared]
        first = [step for steps in made for step in steps[:-1]]
        return [*first, *alone, *(steps[-1] for steps in made)]

    def _node(self, node: Node, names: Names) -> Iterator[Node]:
        if isinstance(node, SegmentedLoop):
            bodies = (tuple(self.rewritten(s.body, names)) for s in node.segments)
            counts = (segment.count for segment in node.segments)
            yield SegmentedLoop(node.variable, tuple(map(LoopSegment, counts, bodies)))
            return
        way = self.means.way
        share = self.shares.get(_filled(node, way) or "")
        if share is None:
            yield node
            return
        parts = self.means.parts(node.items, share.cores)
        others = tuple(core for core in share.cores if core != self.number)
        if way.staged:
            yield from self._staged(node, parts, share, others, names)
            return
        own = parts.own[self.number] if parts else None
        ahead = node.items[:-1]
        if way.direct:
            given = [_written_to(own, share.cores)] if own else []
            items = self._met(ahead, given, others, node) if own else node.items
            yield replace(node, items=items)
            return
        yield replace(node, items=(*ahead, own)) if own else node
        items = ()
        if own:
            there = _written_to(own, others).dst
            copy = Copy(engine=way.last, origin=node.origin, dst=there, src=own.dst)
            items = self._met((), legal_copy(copy, self.means.arch, names), others, node)
        read = tuple(use._replace(write=False) for use in node.uses)
        yield EngineStep(
            self.means.way.last, items, (*read, *node.uses), node.origin, tile=node.tile
        )

    def _staged(
        self, step: EngineStep, parts: _SplitLoad | None, share: _Share, others: tuple[int, ...],
        names: Names,
    ) -> Iterator[EngineStep]:  # fmt: skip
        """This core's part of `step`, its store to shared memory, and copies of others' from there;
        they have the same places in the tree where there is nothing to share."""
        way, (stage, base) = self.means.way, share.stage
        stores, fetches = [], []  # type: list[Item], list[Item]
        mine_uses = their_uses = step.uses if step.items else ()
        if parts is not None:
            own, axis = parts.own[self.number], parts.axis
            there = parts.staged(base, share.pitch)
            low, high = parts.spans[self.number]
            last, fetch = self._meeting(way.last, step), self._meeting(way.fetch, step)
            begun = fetch.sync(**fetch.telling("free", others))
            mine = Copy(
                engine=way.last, origin=step.origin, src=own.dst,
                dst=there.cut(axis, "", low, high - low),
            )  # fmt: skip
            stores = [
                last.sync(**last.awaiting("free", others)),
                *legal_copy(mine, self.means.arch, names),
                last.sync(**last.telling("full", others)),
            ]
            number = self.number
            below, above = ([c for c in others if (c > number) is up] for up in (False, True))
            for start, end, givers in ((0, low, below), (high, there.shape[axis], above)):
                if start < end:
                    src, dst = (
                        o.cut(axis, "", start, end - start) for o in (there, parts.whole.dst)
                    )
                    theirs = Copy(engine=way.fetch, origin=step.origin, src=src, dst=dst)
                    fetches.append(fetch.sync(**fetch.awaiting("full", givers)))
                    fetches += legal_copy(theirs, self.means.arch, names)
            if not parts.whole.dst.address.terms:
                # Others' parts are fetched while its own is still being stored for them.
                cut = self.means.cut_of(parts)
                mine_uses = _cut_at(step.uses, cut, (low, high))
                their_uses = _cut_at(step.uses, cut, (0, low), (high, there.shape[axis]))
            step = replace(step, items=(*step.items[:-1], begun, own))
        yield replace(step, uses=mine_uses or step.uses)
        read = tuple(use._replace(write=False) for use in mine_uses)
        alike: dict[str, Any] = {"staged": stage, "tile": step.tile}
        yield EngineStep(way.last, tuple(_attach_sync(stores)), read, step.origin, **alike)
        yield EngineStep(way.fetch, tuple(_attach_sync(fetches)), their_uses, step.origin, **alike)

    def _meeting(self, engine: str, step: EngineStep) -> Meeting:
        return Meeting(engine, step.origin, self.means.arch, self.number)

    def _met(
        self, ahead: Sequence[Item], own: Sequence[Item], others: tuple[int, ...], step: EngineStep
    ) -> tuple[Item, ...]:
        """`own`, which gives this core's part of `step` to all behind `ahead` and when they have
        room, and the wait for theirs."""
        whole = step.items[-1]
        assert isinstance(whole, Copy)
        meeting = self._meeting(self.means.way.last, step)
        return tuple(_attach_sync(meeting.items(own, others, others, whole.dst, ahead)))


def _cut_at(uses: Sequence[Use], cut: int, *spans: tuple[int, int]) -> tuple[Use, ...]:
    """`uses` of these spans alone of what is `cut`."""
    wide = [(low, high) for low, high in spans if low < high]
    return tuple(use._replace(part=(cut, *span)) for use in uses for span in wide)


def _written_to(copy: Copy, cores: tuple[int, ...]) -> Copy:
    return replace(copy, dst=replace(copy.dst, cores=cores))


def _may_swap(node: Node, run: Sequence[EngineStep], way: MulticastRoute) -> bool:
    """Whether `node` may change places with those of `run`: another load, to other bytes."""
    if not isinstance(node, EngineStep) or node.engine != way.load:
        return False
    return not any(touched(run, use) for use in node.uses)


def _parts(items: Sequence[Item], cores: Sequence[int], means: _Means) -> _SplitLoad | None:
    """What each core loads for all; None where each had better load the whole: one copy, behind
    what that waits for."""
    *ahead, whole = items or (None,)
    if not isinstance(whole, Copy) or not all(isinstance(item, Await) for item in ahead):
        return None
    if isinstance(whole, Indirect):  # rows that lie anywhere are in no parts of one box
        return None
    if whole.src.dtype != whole.dst.dtype or whole.dst.per_item > 1:
        return None
    # What is contiguous at both ends stays so in parts.
    joined = whole if whole.before else merged(whole)
    assert isinstance(joined, Copy)
    # The slowest dimension that can be cut into so many parts.
    able = [axis for axis, extent in enumerate(joined.src.shape) if extent >= len(cores)]
    axis = max(able, key=lambda a: abs(joined.dst.strides[a]), default=None)
    if axis is None:
        return None
    extent = joined.src.shape[axis]
    cuts = [number * extent // len(cores) for number in range(len(cores) + 1)]
    parts = [_partial_copy(joined, axis, start, end) for start, end in pairwise(cuts)]
    rank = means.arch.copy_[whole.engine].rank
    if any(len(walk((part.dst, part.src))) > rank for part in parts if not part.before):
        return None  # dimensions that follow on in the whole do not in its parts
    if not _pays(whole, max(parts, key=lambda part: part.dst.elements), len(cores), means):
        return None
    ends = [0, *accumulate(part.dst.shape[axis] for part in parts)]
    own = dict(zip(cores, parts, strict=True))
    return _SplitLoad(joined, axis, own, dict(zip(cores, pairwise(ends), strict=True)))


def _partial_copy(copy: Copy, axis: int, start: int, end: int) -> Copy:
    """Positions `start` .. `end` of the source along `axis`, with the border beside them."""
    before = copy.before or (0,) * len(copy.dst.shape)
    first = before[axis] + start if start else 0
    last = before[axis] + end if end < copy.src.shape[axis] else copy.dst.shape[axis]
    src, dst = (
        operand.cut(axis, "", low, high - low)
        for operand, low, high in ((copy.src, start, end), (copy.dst, first, last))
    )
    ahead = (*before[:axis], 0 if start else before[axis], *before[axis + 1 :])
    return replace(copy, src=src, dst=dst, before=ahead if src.shape != dst.shape else ())


def _pays(whole: Copy, part: Copy, alike: int, means: _Means) -> bool:
    """Whether a part, passing it on and fetching the others' takes less than the whole, while all
    cores load."""
    arch, way, far = means.arch, means.way, whole.src.memory
    rate = far_rate(arch, far, means.users)
    alone, shared = (
        copy.startup(arch) + max(copy.cycles(arch), copy.traffic(arch)[0].load(arch) / rate)
        for copy in (whole, part)
    )
    size, mine = (copy.dst.elements * copy.dst.itemsize for copy in (whole, part))
    passed = way.passing(mine, arch, means.users)
    fetched = way.fetching(size - mine, arch, means.users)
    able = way.reaches(whole.dst.memory, far) and bool(way.holds(size, means.users, alike))
    return able and bool(way.pays(alone, shared, passed, fetched))


def _attach_sync(items: Sequence[Item]) -> list[Item]:
    """`items` with synchronization joined to the instruction that it stands beside."""
    made: list[Item] = []
    for item in items:
        last = made[-1] if made else None
        if not isinstance(item, Instruction) or not isinstance(last, Instruction):
            made.append(item)
        elif type(last) is Sync and not last.notifies and not isinstance(item, Await):
            made[-1] = replace(item, waits=(*last.waits, *item.waits))
        elif type(item) is Sync and not item.waits and not last.notifies:
            made[-1] = replace(last, notifies=item.notifies)
        else:
            made.append(item)
    return made


def tokens_between(streams: Sequence[Sequence[Item]]) -> tuple[dict[str, int], ...]:
    """Tokens that cores give each other in `streams`: those of each core, with no count yet."""
    found: tuple[dict[str, int], ...] = tuple({} for _ in streams)
    for item in (item for stream in streams for item in instructions(stream)):
        for name, _, cores in item.notifies:
            for core in cores:
                found[core][name] = 0
    return found
