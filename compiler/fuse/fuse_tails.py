"""The first partition: one operator per group, with the element-wise tail that follows it."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.layer import Layer, fresh
from compiler.nest.build import identity
from compiler.nest.ir import HostNode, Nest, NestGraph, Step
from compiler.nest.rewrite import private, readers, reads_of, writes_of
from compiler.passes import check_each_once, ensured


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
        parts: list[list[Nest] | HostNode] = []
        for step in graph.steps:
            if isinstance(step, HostNode):
                parts.append(step)
                continue
            home = self._home(step, parts, removable, uses)
            if home is None:
                parts.append([step])
                continue
            # The group moves to where its newest member stands: its operands exist by then.
            parts.remove(home)
            parts.append([*home, step])
        return parts

    def _home(
        self,
        step: Nest,
        parts: list[list[Nest] | HostNode],
        removable: set[str],
        uses: dict[str, int],
    ) -> list[Nest] | None:
        if step.macs:
            return None  # only the first operator of a group may be a sum of products
        for part in reversed(parts):
            if isinstance(part, HostNode):
                continue
            last = part[-1]
            if step.composite is not None and last.composite == step.composite:
                return part if _joins(part, step, removable) else None
            if self.tails and _is_tail(step, last, removable, uses):
                return part
        return None


def _result(step: Step) -> str:
    return writes_of(step)[0]


def _seen_outside(parts: list[list[Nest] | HostNode]) -> set[str]:
    """Tensors inside a group that another part reads: nobody would ever store them."""
    home = {
        nest.tensor: number
        for number, part in enumerate(parts)
        if not isinstance(part, HostNode)
        for nest in part[:-1]
    }
    return {
        name
        for number, part in enumerate(parts)
        for step in ([part] if isinstance(part, HostNode) else part)
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
