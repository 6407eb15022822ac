"""Concatenation without copies: producers write into the concatenation's buffer.

A buffer is relocated as a whole: one tensor that covers it gives the new address of each element,
and every other view follows if strides can express it. The old address of an element is decomposed
digit by digit, each dimension of the covering tensor being one digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeGuard

from compiler.passes import Omittable, Result, ensured
from compiler.tensor_ir.build import copies
from compiler.tensor_ir.nest import HostNode, Nest, NestGraph, Step, Storage, Tensor
from compiler.tensor_ir.rewrite import NestPass, check_nests, reads_of, with_steps, writes_of


@dataclass(frozen=True)
class JoinConcat(NestPass, Omittable):
    """Tensors that are concatenated move into the slices of the result's buffer.

        buffer a 8                                      buffer y 16
        buffer b 8                                      tensor a: int8[8, 1] at y + 0 by (2, 2)
        buffer y 16                                     tensor b: int8[8, 1] at y + 1 by (2, 2)
        tensor y.part0: int8[8, 1] at y + 0 by (2, 1)
        tensor y.part1: int8[8, 1] at y + 1 by (2, 1)   a[...] = ...
        a[...] = ...                               =>   b[...] = ...
        b[...] = ...
        y.part0[n=8, c=1] = move(a[n, c]) kind Concat
        y.part1[n=8, c=1] = move(b[n, c]) kind Concat

    From the last concatenation to the first: where one joins again what a later one has placed
    side by side (as in networks that hand all earlier features on), it becomes a view. Copies
    stay for graph inputs, constants, results of the host, tensors that two concatenations want
    differently, and views that no strides can say.

    An output that holds an input whole is a state: the cache of keys of an attention, behind which
    each inference writes its own rows. Such an input lies in the output from the start.

        buffer past 8
        buffer present 10                               buffer present 10
        tensor past: int8[4, 2] at past + 0             tensor past: int8[4, 2] at present + 0
        present.part0[...] = move(past) kind Concat  =>
        present.part1[...] = move(row) kind Concat      row[...] = ... at present + 8
    """

    def apply(self, ir: NestGraph) -> Result[NestGraph]:
        groups: dict[tuple[str, str], list[Nest]] = {}
        for step in ir.steps:
            if _joins(step, ir.tensors):
                key = (ir.buffer_of(step.tensor), step.origin)
                groups.setdefault(key, []).append(step)
        joining = _Joining(ir)
        for (whole, _), moves in reversed(groups.items()):
            joining.join(whole, moves)
        return Result(joining.graph(), bool(joining.gone))


def _joins(step: Step, tensors: dict[str, Tensor]) -> TypeGuard[Nest]:
    """Whether `step` copies a part of a concatenation as it is."""
    if not isinstance(step, Nest) or step.kind != "Concat" or not copies(step, tensors):
        return False
    return tensors[step.operands[0].tensor].data is None


@dataclass(frozen=True)
class Placing:
    """Relocation of the elements of one buffer to another."""

    target: str
    offset: int
    digits: tuple[tuple[int, int, int], ...]
    """(old stride, extent, new stride), slowest first; old strides are those of packed digits."""

    @classmethod
    def of(cls, tensor: Tensor, size: int, new: Storage) -> Placing | None:
        """The relocation from a tensor's storage to `new`; None unless it covers its buffer of
        `size` once."""
        old = tensor.storage
        dims = zip(old.strides, tensor.shape, new.strides, strict=True)
        digits: list[tuple[int, int, int]] = []
        packed = 1
        for stride, extent, target in sorted(d for d in dims if d[1] != 1):
            if stride != packed:
                return None
            packed *= extent
            if digits and target == digits[0][1] * digits[0][2]:
                first = digits[0]
                digits[0] = (first[0], first[1] * extent, first[2])
            else:
                digits.insert(0, (stride, extent, target))
        if packed != size or old.offset != 0:
            return None
        return cls(new.buffer, new.offset, tuple(digits))

    def apply(self, tensor: Tensor) -> Tensor | None:
        """`tensor` at its new place; None if strides cannot express it."""
        old = tensor.storage
        if tensor.elements == 0:
            return replace(tensor, storage=Storage(self.target, self.offset, old.strides))
        units = [stride for stride, _, _ in self.digits]
        reach = address_digits(old.offset, units)
        offset = self.offset + self._address_of_digits(reach)
        strides = []
        for extent, stride in zip(tensor.shape, old.strides, strict=True):
            steps = address_digits(stride, units)
            strides.append(self._address_of_digits(steps))
            reach = [r + (extent - 1) * s for r, s in zip(reach, steps, strict=True)]
        if any(r >= extent for r, (_, extent, _) in zip(reach, self.digits, strict=True)):
            return None
        return replace(tensor, storage=Storage(self.target, offset, tuple(strides)))

    def _address_of_digits(self, digits: Iterable[int]) -> int:
        return sum(d * new for d, (_, _, new) in zip(digits, self.digits, strict=True))


def address_digits(address: int, strides: Iterable[int]) -> list[int]:
    """An address as steps along axes with these strides, slowest first."""
    found = []
    for stride in strides:
        steps, address = divmod(address, stride)
        found.append(steps)
    return found


class _Joining:
    """The graph during the pass."""

    def __init__(self, graph: NestGraph) -> None:
        self.source = graph
        self.tensors = dict(graph.tensors)
        self.buffers = dict(graph.buffers)
        self.gone: list[Nest] = []
        self.views: dict[str, list[str]] = {}
        """By buffer, the tensors that lie there."""
        for tensor in graph.tensors.values():
            self.views.setdefault(tensor.storage.buffer, []).append(tensor.name)
        self.made = {step.tensor for step in graph.steps if isinstance(step, Nest)}
        host = (name for s in graph.steps if isinstance(s, HostNode) for name in s.outputs)
        constant = (name for name, tensor in graph.tensors.items() if tensor.data is not None)
        self.fixed = {*graph.outputs, *host, *constant}
        """Tensors whose buffer may not change."""
        self.given = frozenset(graph.inputs)
        self.shown = {graph.buffer_of(name) for name in graph.outputs}
        """Buffers of the network's outputs."""

    def join(self, whole: str, moves: list[Nest]) -> None:
        """Remove the copies `moves` into the concatenation `whole`, as far as possible."""
        if self._is_view_already(whole, moves):
            return
        for move in moves:
            source = self.tensors[move.operands[0].tensor]
            if self._replace(source, self.tensors[move.tensor].storage):
                self.gone.append(move)

    def _is_view_already(self, whole: str, moves: list[Nest]) -> bool:
        """Make `whole` a view of its parts if they are adjacent already."""
        tensor = self.tensors.get(whole)
        if tensor is None:
            return False
        names = {move.tensor for move in moves}
        if any(n in self.made and n not in names for n in self.views[tensor.storage.buffer]):
            return False  # others write there as well
        pairs = [(self.tensors[m.operands[0].tensor], self.tensors[m.tensor]) for m in moves]
        storage = side_by_side(tensor, pairs)
        if storage is None or not self._replace(tensor, storage):
            return False
        self.gone += moves
        return True

    def _replace(self, cover: Tensor, new: Storage) -> bool:
        """Relocate the buffer that `cover` fills so that `cover` has storage `new`; whether that
        was possible."""
        buffer = cover.storage.buffer
        views = [self.tensors[name] for name in self.views.get(buffer, ())]
        if buffer == new.buffer or any(view.name in self.fixed for view in views):
            return False
        if new.buffer not in self.shown and any(view.name in self.given for view in views):
            return False
        placing = Placing.of(cover, self.buffers[buffer], new)
        if placing is None:
            return False
        placed = [placing.apply(view) for view in views]
        if any(view is None for view in placed):
            return False
        self.tensors |= {view.name: view for view in placed if view is not None}
        self.views.setdefault(new.buffer, []).extend(self.views.pop(buffer))
        del self.buffers[buffer]
        return True

    def graph(self) -> NestGraph:
        """The graph without the removed copies and their targets."""
        gone = {id(move) for move in self.gone}
        steps = tuple(step for step in self.source.steps if id(step) not in gone)
        used = {name for step in steps for name in reads_of(step)}
        for move in self.gone:
            if move.tensor not in used and move.tensor not in self.source.outputs:
                self.tensors.pop(move.tensor, None)
        return replace(self.source, tensors=self.tensors, buffers=self.buffers, steps=steps)


def side_by_side(whole: Tensor, parts: list[tuple[Tensor, Tensor]]) -> Storage | None:
    """The storage of `whole` as a view, if its parts are adjacent in one buffer already.

    `parts` are (part, its slice of `whole`), in order; None otherwise.
    """
    first = parts[0][0]
    if any(len(part.shape) != len(whole.shape) for part, _ in parts):
        return None
    axis = next((a for a, n in enumerate(whole.shape) if n != first.shape[a]), 0)
    strides = [1] * len(whole.shape)
    for part, _ in parts:
        for a, (extent, stride) in enumerate(zip(part.shape, part.storage.strides, strict=True)):
            strides[a] = stride if extent > 1 else strides[a]
    if len(parts) > 1 and all(part.shape[axis] == 1 for part, _ in parts):
        strides[axis] = parts[1][0].storage.offset - first.storage.offset
    start = 0
    for part, place in parts:
        storage = Storage(
            first.storage.buffer, first.storage.offset + start * strides[axis], tuple(strides)
        )
        offset = whole.storage.offset + start * whole.storage.strides[axis]
        if not _same(part, storage) or not _same(place, replace(whole.storage, offset=offset)):
            return None
        if any(n != whole.shape[a] for a, n in enumerate(part.shape) if a != axis):
            return None
        start += part.shape[axis]
    complete = start == whole.shape[axis] and strides[axis] > 0
    return replace(first.storage, strides=tuple(strides)) if complete else None


def _same(part: Tensor, storage: Storage) -> bool:
    """Whether `part` has `storage`; strides of dimensions of extent 1 do not matter."""
    begins = (part.storage.buffer, part.storage.offset) == (storage.buffer, storage.offset)
    return begins and part.has_strides(storage.strides)


# Host nodes side by side become one call: the host is asked as rarely as possible.

Join = Callable[[tuple[HostNode, ...], tuple[str, ...], tuple[str, ...]], HostNode | None]
"""Makes one host node of several, given its outputs and allowed inputs; None: impossible."""


@dataclass(frozen=True)
class JoinHost:
    """Wait with host nodes until the accelerator has nothing else to do, then run all that can.

    before:
        a = host Cast(x); y = relu(x); b = host Not(a); z = select(b, y, y)
    after:
        y = relu(x); b = host Cast+Not(x); z = select(b, y, y)

    What only the joined nodes read is never stored.
    """

    join: bool = True
    """False: one call for each node."""

    @ensured
    def apply(self, graph: NestGraph, make: Join) -> NestGraph:
        """`graph` with fewer host nodes, its other steps in the same order where they can be."""
        if not self.join or not any(called(step) for step in graph.steps):
            return graph
        steps: list[Step] = []
        for batch in batches(graph):
            nodes = tuple(step for step in batch if isinstance(step, HostNode))
            joined = None if len(nodes) < 2 else make(nodes, *crossing(nodes, graph))
            steps += batch if joined is None else [joined]
        return with_steps(graph, steps)

    def ensures(self, made: NestGraph, graph: NestGraph, make: Join) -> None:
        check_nests(made)


def batches(graph: NestGraph) -> Iterator[list[Step]]:
    """Batches of steps in an executable order: nests alone, host nodes together with all that are
    ready."""
    writers: dict[str, set[int]] = {}
    needs: list[set[int]] = []
    """For each step the earlier ones that write a buffer it reads."""
    for number, step in enumerate(graph.steps):
        buffers = {graph.buffer_of(name) for name in reads_of(step)}
        needs.append({w for buffer in buffers for w in writers.get(buffer, ())})
        for name in writes_of(step):
            writers.setdefault(graph.buffer_of(name), set()).add(number)
    done: set[int] = set()
    while len(done) < len(graph.steps):
        batch: list[Step] = []
        for on_host, (number, step) in product((False, True), enumerate(graph.steps)):
            if number in done or called(step) != on_host or not needs[number] <= done:
                continue
            done.add(number)
            if on_host:
                batch.append(step)
            else:
                yield [step]
        if batch:
            yield batch


def called(step: Step) -> bool:
    """Whether `step` is computed by the host."""
    return isinstance(step, HostNode) and step.pick is None


def crossing(
    nodes: Sequence[HostNode], graph: NestGraph
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Outputs of `nodes` that others read, and inputs that others write, in one call."""
    buffer = graph.buffer_of
    mine = {id(node) for node in nodes}
    made = {buffer(name) for node in nodes for name in node.outputs}
    others = (step for step in graph.steps if id(step) not in mine)
    seen = {buffer(name) for step in others for name in reads_of(step)}
    seen |= {buffer(name) for name in graph.outputs}
    outputs = tuple(name for node in nodes for name in node.outputs if buffer(name) in seen)
    inputs = (name for node in nodes for name in node.inputs if buffer(name) not in made)
    return outputs, tuple(dict.fromkeys(inputs))
