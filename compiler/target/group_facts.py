"""Facts about a group that do not depend on its tiles.

Engines, layouts and borders of tensors between its layers, and weights that may stay on chip;
computed once per group or layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from compiler.errors import CompilerError
from compiler.geometry.boxes import Key, Range, keys_of, needs
from compiler.geometry.cuts import cut_axes
from compiler.geometry.tile_trace import TileTrace, TraceCache
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.target.array_mapping import roles
from compiler.target.layout import innermost_axes, input_strides, loaded_of, role_of, room_of
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.nest import Access, Tensor, order_of
from simmodel.arch.base import Latest, MemoryRole
from simmodel.arch.record import Arch
from simmodel.isa.region import cached_property


class Unholdable(CompilerError):
    """A tensor cannot stay on chip between these layers; says why."""


@dataclass(frozen=True)
class ResidentConstant:
    """A constant of a layer, or each core's part of it, that can stay on chip for all tiles."""

    key: Key
    role: MemoryRole
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bytes: int
    """On chip."""
    loaded: int
    """Bytes to load for it."""
    follows: frozenset[int] = frozenset()
    """Axes of the result along which cores need different parts."""


@dataclass(frozen=True)
class Passing:
    """Layout of a tensor between layers."""

    order: tuple[int, ...]
    """Axes, slowest first."""
    engines: frozenset[str]
    """Engines that write or read it."""
    border: float | None
    """Border value that its readers expect."""
    innermost: tuple[int, ...]
    """The axes that must be last in that order; none: any."""


@dataclass
class LayerFacts:
    """One layer on one machine."""

    layer: Layer
    arch: Arch
    _by_part: dict[object, tuple[ResidentConstant, ...]] = field(default_factory=dict)

    @cached_property
    def engines(self) -> tuple[tuple[str, str], ...]:
        """Per nest: the engine that reads its operands, and the one that finishes it."""
        return tuple(
            (way.adder if way.engine == "matrix" else way.finisher, way.finisher)
            for way in self.layer.bindings
        )

    @cached_property
    def accesses(self) -> dict[str, list[tuple[Access, Key, int]]]:
        """Input -> its accesses, with the position of the nest."""
        found: dict[str, list[tuple[Access, Key, int]]] = {}
        for position, nest in enumerate(self.layer.nests):
            for access, key in zip(nest.reads, keys_of(nest), strict=True):
                found.setdefault(access.tensor, []).append((access, key, position))
        return found

    @cached_property
    def roles(self) -> dict[Key, MemoryRole]:
        """Input -> memory from which it is read."""
        keys = {key for entries in self.accesses.values() for _, key, _ in entries}
        return {key: role_of(self.layer, key, self.arch) for key in keys}

    @cached_property
    def innermost(self) -> tuple[int, ...]:
        """Innermost axes of a product's left operand; none for other layers."""
        if self.layer.binding.engine != "matrix":
            return ()
        head = self.layer.head
        return innermost_axes(self.layer.tensors[head.operands[0].tensor], head, self.arch)

    @cached_property
    def _read(self) -> tuple[Key, ...]:
        """Constants, in the order of use."""
        keys = dict.fromkeys(key for nest in self.layer.nests for key in keys_of(nest))
        return tuple(key for key in keys if self.layer.tensors[key[0]].data is not None)

    @cached_property
    def constants(self) -> tuple[ResidentConstant, ...]:
        """Constants that all tiles need alike, along whatever they are cut."""
        shape, moved = self.layer.result.shape, self._axes_moving(self._cut)
        return tuple(self._staying(key, shape) for key in self._read if not moved[key])

    def constants_of(
        self, walked: Sequence[TileTrace], position: int
    ) -> tuple[ResidentConstant, ...]:
        """The same of those tiles of this layer, at `position` of its group, for the largest part
        of a core: what cores cut and no loop over tiles moves, such as the rows of a mask that all
        heads add, is alike in all of them."""
        if not self._read:
            return ()
        moving, parts = set[int](), list[Box]()
        for own in walked:
            part = own.share(position, self.layer.result.name)
            if part is not None:
                parts.append(part)
                spans = enumerate(own.work[position].spans)
                moving |= {d for d, covered in spans if covered != {part[d]}}
        if not parts:
            return self.constants
        sizes = tuple(max(size for _, size in spans) for spans in zip(*parts, strict=True))
        asked = sizes, frozenset(moving)
        if asked not in self._by_part:
            shape = self.layer.result.shape
            cut, moved, any_ = map(self._axes_moving, (self._cut, moving, range(len(shape))))
            self._by_part[asked] = tuple(
                replace(self._staying(key, sizes), follows=any_[key])
                if by_part(key)
                else self._staying(key, shape)
                for key in self._read
                if not cut[key] or (by_part(key) and not moved[key])
            )
        return self._by_part[asked]

    @cached_property
    def _cut(self) -> frozenset[int]:
        """Axes of the result along which tiles are cut."""
        column = roles(self.layer.head).col if self.layer.head.macs else None
        return frozenset(cut_axes(self.layer.result.shape)) - {column}  # none splits columns

    def _axes_moving(self, axes: Iterable[int]) -> dict[Key, frozenset[int]]:
        """Which of these axes of the result each constant moves along."""
        # One element that may lie anywhere: in what moves along with it, tiles differ.
        shape, found = self.layer.result.shape, dict.fromkeys(self._read, frozenset[int]())
        for axis in axes:
            one = (
                Range(0, min(1, extent), (("d", 1),) if d == axis else ())
                for d, extent in enumerate(shape)
            )
            regions = needs(self.layer, tuple(one), {}).regions
            for key in self._read:
                if any(span.terms for span in regions[key].ranges):
                    found[key] |= {axis}
        return found

    def _staying(self, key: Key, sizes: Sequence[int]) -> ResidentConstant:
        """A constant, as far as `sizes` of the result need it."""
        layer, tensor = self.layer, self.layer.tensors[key[0]]
        region = needs(layer, tuple(Range(0, size) for size in sizes), {}).regions[key]
        strides = input_strides(layer, key, region, self.arch)
        size = int(room_of(layer, key, region.padded))
        loaded = int(loaded_of(tensor, region.padded))
        fields = key, self.roles[key], tensor.dtype, region.padded, strides, size, loaded
        return ResidentConstant(*fields)


def by_part(key: Key) -> bool:
    """Whether a core may keep its own part of a constant alone: weights are packed as a whole, and
    parts at a border would differ."""
    return not key[2] and key[1] is None


@dataclass
class Facts:
    """Groups on one machine."""

    arch: Arch
    walks: TraceCache = field(default_factory=TraceCache)
    """What layers need for tiles of theirs."""
    passings: dict[tuple[object, ...], Passing] = field(default_factory=dict)
    """By name, whether the group produces and stores it, and the identities of its users there,
    which `layer` keeps alive."""

    def __post_init__(self) -> None:
        self._of_group = Latest[Group, dict[str, Passing]](lambda _: {})
        arch = self.arch
        self.layer = Latest[Layer, LayerFacts](
            lambda layer: LayerFacts(layer, arch.with_array(layer.binding.array)), None
        )

    def passing(self, group: Group, name: str) -> Passing:
        """Layout of `name` between layers of `group`; Unholdable if its readers disagree."""
        known = self._of_group(group)
        if name not in known:
            ends = name in group.producer_positions, name in group.results
            key = name, *ends, *map(id, group.users[name])
            if key not in self.passings:
                self.passings[key] = self._passing(group, name)
            known[name] = self.passings[key]
        return known[name]

    def _passing(self, group: Group, name: str) -> Passing:
        tensor = group.tensors[name]
        order = list(order_of(tensor.shape, tensor.storage.strides))
        innermost: set[tuple[int, ...]] = set()
        borders: set[float] = set()
        engines = {"store"} if name in group.results else set()
        if any(layer.copies for layer in group.users[name]):
            self.movable(tensor)
        for layer in group.users[name]:
            facts = self.layer(layer)
            if layer.result.name == name:
                engines.add(facts.engines[-1][1])
            for access, key, position in facts.accesses.get(name, ()):
                engines.add(facts.engines[position][0])
                if facts.roles[key] != "local":
                    raise Unholdable(f"{name} is read from another memory than local")
                if access.pad is not None:
                    borders.add(access.pad)
                product = position == 0 and access is layer.head.operands[0]
                if product and facts.innermost:
                    innermost.add(facts.innermost)
        if len(innermost) > 1:
            raise Unholdable(f"{name} is read in two orders")
        if len(borders) > 1:
            raise Unholdable(f"{name} is read with different borders")
        if borders and name in group.producer_positions:
            self.movable(tensor)  # the vector engine fills the border of what is made here
        border, last = next(iter(borders), None), next(iter(innermost), ())
        order = [*(axis for axis in order if axis not in last), *last]
        return Passing(tuple(order), frozenset(engines), border, last)

    def movable(self, tensor: Tensor) -> None:
        """Raise Unholdable if the vector engine, which moves within a memory, lacks the type."""
        if not self.arch.vector.has(tensor.dtype):
            why = f"no {tensor.dtype} on the vector engine"
            raise Unholdable(f"{tensor.name} cannot be moved on chip: {why}")
