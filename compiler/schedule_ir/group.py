"""A group: layers that share tile loops; what passes between them stays on chip.

Its loops walk the results. A layer inside computes just what the next tile of the results needs,
found backwards through the operators' index maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiler.schedule_ir.layer import Layer
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.nest import Storage, Tensor, dense
from simmodel.arch.base import MemoryRole
from simmodel.arch.record import Arch
from simmodel.isa.region import cached_property, replace


@dataclass(frozen=True)
class ResidentTensor:
    """A tensor that stays on chip from the group that makes it to the last one that reads it.

    It may be a slice of what several groups make: then it lies among the other slices. Where
    several cores work, each keeps a part of it; these may have positions in common.
    """

    shape: tuple[int, ...]
    before: tuple[int, ...]
    """Border that any of its readers expects in front, per dimension."""
    after: tuple[int, ...]
    order: tuple[int, ...]
    """Axes, slowest first."""
    border: float
    """Raw value of the border."""
    address: int
    """Of the first byte of the place, border included, in the local memory of every core."""
    whole: str = field(compare=False)
    """The tensor that fills the place."""
    start: tuple[int, ...]
    """Where this one begins in that tensor."""
    room: tuple[int, ...]
    """Sizes of the place, border included."""
    view: Storage | None = None
    """Where it lies in the place, if it is no box of that tensor but splits or merges dimensions;
    the place is without a border then, as memory would be."""
    cut: tuple[Box, ...] = ()
    """By core, the part that it keeps; none: the one core keeps all of it."""
    passed: bool = False
    """Whether each core makes its share alone, and cores pass each other what they keep beside it;
    else each makes all that it keeps."""

    @cached_property
    def slices(self) -> tuple[Box, ...]:
        """By core, the part that it keeps."""
        return self.cut or (tuple((0, extent) for extent in self.shape),)

    @cached_property
    def everywhere(self) -> bool:
        """Whether each of several cores keeps all of it."""
        return bool(self.cut) and all(
            part == tuple((0, extent) for extent in self.shape) for part in self.cut
        )

    def around(self, core: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The border in front of a core's part and behind it: there is none inside the tensor."""
        spans = tuple(zip(self.slices[core], self.shape, strict=True))
        before = (b * (low == 0) for ((low, _), _), b in zip(spans, self.before, strict=True))
        after = (
            a * (low + size == extent)
            for ((low, size), extent), a in zip(spans, self.after, strict=True)
        )
        return tuple(before), tuple(after)

    @cached_property
    def padded(self) -> tuple[int, ...]:
        """Sizes of the largest part with its border."""
        sizes = (
            padded([size for _, size in part], *self.around(core))
            for core, part in enumerate(self.slices)
        )
        return tuple(max(column) for column in zip(*sizes, strict=True))

    @property
    def strides(self) -> tuple[int, ...]:
        """In the place, in elements."""
        return dense(self.room, self.order) if self.view is None else self.view.strides

    @property
    def offset(self) -> int:
        """Elements of the place before its own first one, border included."""
        if self.view is not None:
            return self.view.offset
        return sum(first * step for first, step in zip(self.start, self.strides, strict=True))


def padded(shape: Sequence[int], before: Sequence[int], after: Sequence[int]) -> tuple[int, ...]:
    """Sizes with a border."""
    return tuple(b + n + a for b, n, a in zip(before, shape, after, strict=True))


@dataclass(frozen=True)
class Pinned:
    """A constant that stays on chip from the first group that reads it to the last one: all of it
    on every core that works on it."""

    memory: MemoryRole
    address: int
    """Of its first byte, in that memory of every core."""
    bytes: int
    loads: bool = False
    """Whether no group before reads it, so that it has to be loaded first."""


@dataclass(frozen=True)
class Shared:
    """Where a tensor's buffer lies in shared memory."""

    address: int
    bytes: int
    """Of the buffer; where each cluster has a shared memory, of its slice of the buffer."""
    slices: int = 1
    """Clusters that have a slice each."""


Residency = ResidentTensor | Pinned | Shared
"""Where a tensor lies that need not go through DRAM between groups."""
_OF_LAYERS = "producer_positions", "internal_readers", "overwritten", "users", "inputs"
"""What is worked out of a group and depends on no residency."""


@dataclass(frozen=True)
class Group:
    """Layers in an order in which they can run."""

    layers: tuple[Layer, ...]
    results: tuple[str, ...]
    """Tensors made here that others read, or that the network gives."""
    residency: Mapping[str, Residency] = field(default_factory=dict, hash=False)
    """Inputs and results that lie elsewhere than in DRAM before or after the group."""
    reserved: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Memory role -> bytes at its end that hold what stays on chip, for this group or others."""

    @cached_property
    def residents(self) -> dict[str, ResidentTensor]:
        """Inputs and results that are on chip before and after."""
        return {n: r for n, r in self.residency.items() if isinstance(r, ResidentTensor)}

    @cached_property
    def pinned(self) -> dict[str, Pinned]:
        """Constants that stay on chip before or after, in order of first use."""
        rows = ((name, self.residency.get(name)) for name in self.inputs)
        return {name: row for name, row in rows if isinstance(row, Pinned)}

    @cached_property
    def shared(self) -> dict[str, Shared]:
        """Inputs and stored results that lie in shared memory."""
        return {n: r for n, r in self.residency.items() if isinstance(r, Shared)}

    def beside(self, rows: Mapping[str, Residency], reserved: Mapping[str, int]) -> Group:
        """The group with more that lies elsewhere than in DRAM; `reserved` is for all there is."""
        reserved = reserving(self.reserved, reserved)
        found = replace(self, residency={**self.residency, **rows}, reserved=reserved)
        known = self.__dict__
        found.__dict__.update({name: known[name] for name in _OF_LAYERS if name in known})
        return found

    def room(self, role: str, size: int) -> int:
        """Of a memory of `size` bytes, those that the group may use."""
        return size - self.reserved.get(role, 0)

    @property
    def alone(self) -> bool:
        """Whether it is one layer of which nothing is on chip before or after."""
        return len(self.layers) == 1 and not self.residents and not self.pinned

    @property
    def index(self) -> int:
        """Number of its first layer."""
        return self.layers[0].index

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The network's tensors."""
        return self.layers[0].tensors

    @cached_property
    def producer_positions(self) -> dict[str, int]:
        """Tensors that the group makes, each with the position of the layer that makes it."""
        return {layer.result.name: position for position, layer in enumerate(self.layers)}

    @cached_property
    def internal_readers(self) -> dict[str, tuple[int, ...]]:
        """Tensors that pass between its layers, each with the positions of their readers."""
        found: dict[str, list[int]] = {}
        for position, layer in enumerate(self.layers):
            for name in layer.inputs:
                if name in self.producer_positions:
                    found.setdefault(name, []).append(position)
        return {name: tuple(readers) for name, readers in found.items()}

    @cached_property
    def overwritten(self) -> dict[str, str]:
        """Results that may be made in the place of a tensor that passes between layers, each with
        that one: its last reader makes them of it, element by element."""
        found: dict[str, str] = {}
        for layer in self.layers:
            for name in layer.inputs:
                readers = self.internal_readers.get(name, ())
                last = bool(readers) and self.layers[readers[-1]] is layer
                if last and name not in self.results and layer.overwrites(name):
                    found.setdefault(layer.result.name, name)
        return found

    @cached_property
    def users(self) -> dict[str, tuple[Layer, ...]]:
        """Tensors between layers or of the network, each with the layers that make or read it."""
        found: dict[str, list[Layer]] = {}
        for layer in self.layers:
            for name in (*layer.inputs, layer.result.name):
                found.setdefault(name, []).append(layer)
        return {name: tuple(layers) for name, layers in found.items()}

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that it reads from memory, constants included, in order of first use."""
        names = (name for layer in self.layers for name in layer.inputs)
        return tuple(dict.fromkeys(name for name in names if name not in self.producer_positions))

    @cached_property
    def stored(self) -> tuple[str, ...]:
        """Results that go to memory."""
        return tuple(name for name in self.results if name not in self.residents)

    def home(self, name: str, arch: Arch) -> str:
        """Where a tensor lies between groups: off chip or in shared memory."""
        if name in self.shared:
            return "shared"
        return arch.constants if self.tensors[name].constant else "dram"

    @property
    def name(self) -> str:
        """The model's nodes that it stands for."""
        if len(self.layers) == 1:
            return self.layers[0].name
        return f"{self.layers[0].name} .. {self.layers[-1].name}"


def reserving(*reserves: Mapping[str, int]) -> dict[str, int]:
    """By memory role, the most bytes of all `reserves`."""
    found: dict[str, int] = {}
    for role, size in (pair for reserve in reserves for pair in reserve.items()):
        found[role] = max(found.get(role, 0), size)
    return found


def grouped(layers: Sequence[Layer], readers: Mapping[str, frozenset[str]]) -> Group:
    """The group of `layers`, given in an order in which they can run.

    Args:
        layers: at least one.
        readers: tensor -> the tensors that its readers make, and some name that no layer makes
            where the network gives it. What nobody reads is a result as well.
    """
    made = [layer.result.name for layer in layers]
    inside = frozenset(made)
    results = (name for name in made if not readers[name] or not readers[name] <= inside)
    return Group(tuple(layers), tuple(results))
