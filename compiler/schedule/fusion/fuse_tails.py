"""The first partition: one operator per group, with the element-wise tail that follows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count

from compiler.passes import check_each_once, ensured
from compiler.schedule_ir.layer import Layer, fresh
from compiler.tensor_ir.build import identity
from compiler.tensor_ir.nest import HostNode, Nest, NestGraph, Put, Step
from compiler.tensor_ir.rewrite import private, readers, reads_of, writes_of


@dataclass(frozen=True)
class FuseTails:
    """Partition a network into groups.

    An element-wise operator joins the group before it when it alone reads that group's result, at
    the same position. Operators that were made from one composite operator share a group.

    before:
        conv; add; relu; conv
    after:
        {conv; add; relu}  {conv}
    """

    tails: bool = True
    """Whether element-wise operators join at all."""

    @ensured
    def apply(self, graph: NestGraph) -> tuple[Layer | HostNode, ...]:
        """Groups and host nodes in an order in which they can run."""
        removable = private(graph)
        while True:
            parts = self._parts(graph, removable)
            seen = _seen_outside(parts)
            if not seen:
                break
            removable -= seen
        return tuple(
            part if isinstance(part, HostNode) else fresh(index, tuple(part), graph)
            for index, part in enumerate(parts)
        )

    def ensures(self, parts: tuple[Layer | HostNode, ...], graph: NestGraph) -> None:
        """Every step of `graph` is in exactly one part."""
        steps = (s for part in parts for s in (part.nests if isinstance(part, Layer) else [part]))
        check_each_once(map(_result, graph.steps), map(_result, steps))

    def _parts(self, graph: NestGraph, removable: set[str]) -> list[list[Nest] | HostNode]:
        """The partition in which only results among `removable` stay inside a group."""
        uses = {name: len(found) for name, found in readers(graph).items()}
        parts = _FusedParts()
        for step in graph.steps:
            if isinstance(step, HostNode):
                parts.stay(step, graph)
                parts.add(step)
                continue
            home = self._home(step, parts, removable, uses)
            # The group moves to where its newest member stands: its operands exist by then.
            parts.add([*([] if home is None else parts.taken(home)), step])
        return [*parts.found.values()]

    def _home(
        self, step: Nest, parts: _FusedParts, removable: set[str], uses: dict[str, int]
    ) -> int | None:
        if step.macs:
            return None  # only the first operator of a group may be a sum of products
        for number in parts.near(step):
            part = parts.nests(number)
            last = part[-1]
            if step.composite is not None and last.composite == step.composite:
                return number if _joins(part, step, removable) else None
            if self.tails and _is_tail(step, last, removable, uses):
                return number
        return None


class _FusedParts:
    """Parts by number, which grows with their place; and which of them a step may join."""

    def __init__(self) -> None:
        self.found: dict[int, list[Nest] | HostNode] = {}
        self._numbers = count()
        self._ends: dict[Hashable, set[int]] = defaultdict(set)
        """By result and by composite operator, the parts that end in it or in a piece of it."""
        self._fixed: set[int] = set()
        """Parts that no step joins any more, as they would move behind it."""

    def stay(self, step: HostNode, graph: NestGraph) -> None:
        """Keep what reads a table ahead of `step`, which changes rows of it."""
        if not isinstance(step.pick, Put):
            return
        table = graph.tensors[step.pick.table].storage.buffer
        for number, part in self.found.items():
            nests = [] if isinstance(part, HostNode) else part
            names = (name for nest in nests for name in reads_of(nest))
            if any(graph.tensors[name].storage.buffer == table for name in names):
                self._fixed.add(number)

    def add(self, part: list[Nest] | HostNode) -> None:
        """Put `part` behind all others."""
        number = next(self._numbers)
        self.found[number] = part
        for end in () if isinstance(part, HostNode) else _ends(part[-1]):
            self._ends[end].add(number)

    def nests(self, number: int) -> list[Nest]:
        """A part that is no call of the host."""
        part = self.found[number]
        assert not isinstance(part, HostNode)
        return part

    def taken(self, number: int) -> list[Nest]:
        """A part that is no call of the host, and that is none any more."""
        part = self.nests(number)
        del self.found[number]
        for end in _ends(part[-1]):
            self._ends[end].discard(number)
        return part

    def near(self, step: Nest) -> list[int]:
        """Parts that end in what `step` reads or in a piece of its composite operator, the last
        one first."""
        ends = (*(access.tensor for access in step.operands), (step.composite,))
        return sorted({n for end in ends for n in self._ends.get(end, ())} - self._fixed)[::-1]


def _ends(nest: Nest) -> list[Hashable]:
    """The result of a nest, and the composite operator that it is a piece of."""
    return [nest.tensor] if nest.composite is None else [nest.tensor, (nest.composite,)]


def _result(step: Step) -> str:
    return writes_of(step)[0]


def _seen_outside(parts: list[list[Nest] | HostNode]) -> set[str]:
    """Tensors inside a group that another part reads: nobody would ever store them."""
    steps = [*enumerate([part] if isinstance(part, HostNode) else part for part in parts)]
    home = {writes_of(step)[0]: number for number, part in steps for step in part[:-1]}
    return {
        name
        for number, part in steps
        for step in part
        for name in reads_of(step)
        if home.get(name, number) != number
    }


def _is_tail(step: Nest, last: Nest, removable: set[str], uses: dict[str, int]) -> bool:
    reads = sum(access.tensor == last.tensor for access in step.operands)
    alone = reads > 0 and uses.get(last.tensor, 0) == reads
    return alone and last.tensor in removable and _in_place([last], step)


def _joins(part: list[Nest], step: Nest, removable: set[str]) -> bool:
    """Whether `step` may follow `part`, which ends in another piece of its composite operator.

    Every result of `part` then lives inside the group, where nothing has a border to be read. A
    sum of products is walked in its own dimensions, so nothing behind it may reduce them or move
    between them.
    """
    made = {nest.tensor for nest in part}
    if not made <= removable:
        return False
    if any(access.tensor in made and access.pad is not None for access in step.operands):
        return False
    return not part[0].macs or _in_place(part, step)


def _in_place(part: list[Nest], step: Nest) -> bool:
    """Whether `step` works element by element on what `part` makes, at the same position."""
    if not step.elementwise or step.shape != part[-1].shape:
        return False
    made = {nest.tensor for nest in part}
    reads = [access for access in step.operands if access.tensor in made]
    return all(identity(access, step.rank) and access.pad is None for access in reads)
