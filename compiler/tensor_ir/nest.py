"""The nest: one tileable operator as a loop nest over tensors with affine accesses.

    nest     = tensor[d0, d1, ...] = clip(reduce over r0, r1, ... of function(access, ...))
    access   = tensor[affine, ...]            a pad value stands for reads outside the tensor
    affine   = coefficient * dim + ... + constant

The result's index is always the output dims themselves, in order. A contraction is the function
`mul` under the reduction `sum`; pooling is `move` under `max` or `sum`; everything element-wise has
no reduction. Index maps, bounds, cost and the numpy meaning follow from these few fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.frontend.quantization.narrow_constants import Narrow
from compiler.tensor_ir.registers import Count
from simmodel.arch.element_types import size_of
from simmodel.arch.lazy_array import AnyArray
from simmodel.isa.region import Register, Terms, cached_property, contiguous, replace

Array = NDArray[Any]


@dataclass(frozen=True)
class Dim:
    """One loop of a nest."""

    name: str
    extent: int
    """At the maximum of all registers."""
    count: Count | None = None
    """Positions at other lengths; None: always its extent."""


@dataclass(frozen=True)
class Affine:
    """Position along one tensor dimension: sum of coefficient * loop, plus a constant."""

    terms: tuple[tuple[int, int], ...] = ()
    """(position of the loop in the nest's dims, coefficient)."""
    constant: int = 0
    """At the maximum of all registers."""
    registers: Terms = ()
    """Decrease of the constant for each step of a register below its maximum."""
    spare: int = 0
    """Positions behind the last one that come along, though the nest does not use them."""

    def coefficient(self, dim: int) -> int:
        """Factor of loop `dim`; 0 where it does not occur."""
        found = 0
        for position, factor in self.terms:
            if position == dim:
                found += factor
        return found


def at(dim: int, coefficient: int = 1, constant: int = 0) -> Affine:
    """The affine position coefficient * dim + constant."""
    return Affine(((dim, coefficient),), constant)


ZERO = Affine()


@dataclass(frozen=True)
class Access:
    """A read of a tensor: position, and the encoding of its values."""

    tensor: str
    index: tuple[Affine, ...]
    pad: float | None = None
    """Real value read outside the tensor; None: never outside."""
    scale: float | None = None
    zero: int = 0
    """Quantized tensors: real = (raw - zero) * scale."""

    def uses(self, dim: int) -> bool:
        """Whether the position depends on loop `dim`."""
        return any(affine.coefficient(dim) for affine in self.index)


@dataclass(frozen=True)
class Nest:
    """One operator; see the module's grammar."""

    tensor: str
    """Name of the result."""
    dims: tuple[Dim, ...]
    """Output dims in the result's order, then reduction dims."""
    rank: int
    """How many of `dims` are output dims."""
    function: str
    operands: tuple[Access, ...]
    reduce: str | None = None
    parameters: tuple[float, ...] = ()
    bias: Access | None = None
    """Added after the reduction."""
    multiplier: Access | None = None
    """Multiplied after the bias: turns integer sums into output steps or real values."""
    low: float = -math.inf
    high: float = math.inf
    scale: float | None = None
    zero: int = 0
    """Encoding of the result: raw = round(real / scale) + zero, saturated."""
    origin: str = ""
    """Name of the model's node."""
    kind: str = ""
    """Operator type, for reports."""
    composite: str | None = None
    """Operators of one model node share this and one group."""
    table: tuple[float, ...] = ()
    """By the byte of an 8-bit result, the one that is stored in its place."""
    added: Access | None = None
    """Of a sum of products, added to the finished result on its way out, before the clip."""
    middle: tuple[float, ...] = ()
    """Integers of the result's type to which it is rounded before: a step, its real value, zero."""
    uncertain: tuple[float, ...] = field(default=(), compare=False)
    """Of a look-up, by entry: its error relative to other implementations."""
    block: int = 1
    """Numbers in each element of the operands of a product, and steps of its reduction at once."""
    sparse: int = 1
    """One of so many products counts: the others have zero weights that are no weights of the
    model."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(dim.extent for dim in self.dims[: self.rank])

    @property
    def reads(self) -> tuple[Access, ...]:
        """Every access, operands first."""
        return (*self.operands, *self.late) if self.late else self.operands

    @cached_property
    def late(self) -> tuple[Access, ...]:
        """Those behind the reduction: bias, multiplier, what is added."""
        late = self.bias, self.multiplier, self.added
        return tuple(access for access in late if access is not None)

    def with_reads(self, reads: Iterable[Access]) -> Nest:
        """The same with other accesses in the places of `reads`."""
        given = iter(reads)
        operands = tuple(islice(given, len(self.operands)))
        bias, multiplier, added = (
            None if access is None else next(given)
            for access in (self.bias, self.multiplier, self.added)
        )
        return replace(self, operands=operands, bias=bias, multiplier=multiplier, added=added)

    @cached_property
    def contraction(self) -> bool:
        """Whether it is a sum of products that is not depthwise: work for the matrix engine."""
        if self.function != "mul" or self.reduce != "sum":
            return False
        inner = range(self.rank, len(self.dims))
        return any(all(a.uses(d) for a in self.operands) for d in inner) and not self.depthwise

    @cached_property
    def depthwise(self) -> bool:
        """Whether it is a sum of products over a window, channel by channel."""
        if self.function != "mul" or self.reduce != "sum":
            return False
        inner = (d for d in range(self.rank, len(self.dims)) if d != self.beside)
        return all(  # each slides along an output loop in the first operand
            any(index.coefficient(d) and len(index.terms) > 1 for index in self.operands[0].index)
            for d in inner
        )

    @cached_property
    def beside(self) -> int | None:
        """The loop over the channels that a depthwise product is computed with, all but one with
        zero weights; None: single channels."""
        if self.sparse == 1:
            return None
        inner = range(self.rank, len(self.dims))
        return next(d for d in inner if not self.operands[0].uses(d))

    @property
    def unclipped(self) -> bool:
        return self.low == -math.inf and self.high == math.inf

    @property
    def elementwise(self) -> bool:
        """Whether there is no reduction."""
        return self.reduce is None

    @property
    def macs(self) -> int:
        """Multiply-accumulates; 0 unless it is a sum of products."""
        if self.function != "mul" or self.reduce != "sum":
            return 0
        return math.prod(dim.extent for dim in self.dims) * self.block


@dataclass(frozen=True)
class Storage:
    """Storage of a tensor: buffer, offset and strides, all in elements."""

    buffer: str
    offset: int
    """At the maximum of all registers."""
    strides: tuple[int, ...]
    """The same at all lengths."""
    registers: Terms = ()
    """Decrease of the offset for each step of a register below its maximum."""


@dataclass(frozen=True)
class TableRows:
    """Rows of another tensor."""

    table: Tensor
    index: Tensor
    """Row numbers; negative: from the end."""
    axis: int
    """Axis of the table that the index selects."""

    @property
    def first(self) -> int:
        """Axis of the rows at which the dimensions of the index stand."""
        return self.axis

    @property
    def counted(self) -> range:
        """Axes of the rows that are the index's."""
        return range(self.first, self.first + len(self.index.shape))

    @property
    def along(self) -> tuple[int, ...]:
        """Axes of the rows that are the table's, in its order, without the selected one: one row
        number moves them as a whole."""
        rank = len(self.table.shape) + len(self.index.shape) - 1
        return tuple(a for a in range(rank) if a not in self.counted)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours in the table, along each of `along`."""
        strides = self.table.storage.strides
        return (*strides[: self.first], *strides[self.first + 1 :])


@dataclass(frozen=True)
class Picked(TableRows):
    """Rows that are stored only in their table: each reader copies them from there, once the index
    is known."""

    origin: str = ""
    """Name of the model's node that gathers them."""
    kind: str = ""
    """Its operator type."""


@dataclass(frozen=True)
class RowPlacement(TableRows):
    """Rows that are stored only into their table: the producer copies each to its place, once the
    index is known."""

    block: bool = False
    """Each number is for a position of the first axis, and says where its rows begin that follow
    each other along `axis`; else the rows have the dimensions of the index in the place of the
    axis, which is the first one."""

    @property
    def first(self) -> int:
        return 0

    @property
    def common(self) -> tuple[int, ...]:
        """Axes of the rows whose positions may overlap in bytes."""
        return (self.axis,) if self.block else tuple(self.counted)


@dataclass(frozen=True)
class Tensor:
    """A value between operators."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """Element type as stored."""
    storage: Storage
    data: AnyArray | None = field(default=None, compare=False)
    """Raw values, for constants."""
    exact: AnyArray | None = field(default=None, compare=False, repr=False)
    """The model's values, if its type is another."""
    uncertain: Array | float = field(default=0.0, compare=False)
    """Error of a constant that an operator's rule computes, relative to other implementations."""
    rounded: tuple[str, ...] = field(default=(), compare=False)
    """Half-precision types that the model casts to, one after another, if memory is no wider: the
    machine does nothing, an fp32 reference rounds."""
    converted: bool = field(default=False, compare=False)
    """Integers converted from real values by a Cast: undefined if out of range."""
    narrow: Narrow | None = field(default=None, compare=False, repr=False)
    """Narrow form of a constant in memory, from which engines make the wide values; None: stored as
    it is."""
    digits: str = field(default="", compare=False)
    """Of a bias that memory holds as weights, from which the array makes it, the type of these
    (`StartSums`)."""
    picked: Picked | None = None
    """Rows of another tensor that this one consists of."""
    placed: RowPlacement | None = None
    """Rows of another tensor into which this one is stored, its only use."""
    counts: tuple[Count | None, ...] = ()
    """By axis, positions at lengths below the maximum of all registers; None: as many. Empty: so
    for every axis."""

    @cached_property
    def elements(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def span(self) -> tuple[int, int]:
        """Places of its first and last element in its buffer."""
        ends = [s * (n - 1) for n, s in zip(self.shape, self.storage.strides, strict=True)]
        low, high = (self.storage.offset + sum(e for e in ends if e * s > 0) for s in (-1, 1))
        return low, high

    def has_strides(self, strides: tuple[int, ...]) -> bool:
        """Whether its elements lie in these steps, whatever those of dimensions of extent 1."""
        steps = zip(self.shape, self.storage.strides, strides, strict=True)
        return all(extent <= 1 or own == other for extent, own, other in steps)

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """The tensors whose bytes are touched where it is loaded or stored, the list last."""
        rows = self.picked or self.placed
        return (self,) if rows is None else (rows.table, rows.index)

    @property
    def constant(self) -> bool:
        """Whether the bytes that are loaded for it are those of a constant, itself or a table."""
        return self.sources[0].data is not None

    @property
    def multiplied(self) -> str:
        """The type in which engines read it: its own, unless the array reads the narrow one."""
        narrow = self.narrow
        return narrow.dtype if narrow is not None and narrow.compressed else self.dtype

    @property
    def stored(self) -> int:
        """Bytes in memory."""
        return self.elements * size_of(self.dtype) if self.narrow is None else self.narrow.bytes


def with_sources(tensor: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """`tensor` with its rows' table and index changed, if it has any."""
    picked, placed = tensor.picked, tensor.placed
    if picked is not None:
        picked = replace(picked, table=change(picked.table), index=change(picked.index))
    if placed is not None:
        placed = replace(placed, table=change(placed.table), index=change(placed.index))
    return replace(tensor, picked=picked, placed=placed)


@dataclass(frozen=True)
class Pick:
    """Gather: rows = table[.., index, ..], which copy engines with row lists can do."""

    table: str
    index: str
    axis: int

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of what it is about, also constants, which are no inputs of its node."""
        return self.table, self.index


@dataclass(frozen=True)
class Put(Pick):
    """Scatter: table = given, with `update` in the rows of the index; copy engines with row lists
    can do it if the table may share the bytes of `given`."""

    given: str
    update: str
    block: bool = False
    """As of `RowPlacement`."""

    @property
    def tensors(self) -> tuple[str, ...]:
        return *super().tensors, self.given, self.update


@dataclass(frozen=True)
class HostNode:
    """An operator without a nest: it runs on the host through a payload."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    payload: bytes
    origin: str
    kind: str
    reason: str
    operations: int = 0
    pick: Pick | None = None
    """A gather or scatter instead of a host call: readers load the rows, or the producer stores
    them."""
    otherwise: tuple[Nest, ...] = ()
    """Nests that compute the same, for machines that neither gather nor scatter."""
    of_boxes: bytes = b""
    """A payload that makes any box of the result from that of the input; empty: there is none."""


Step = Nest | HostNode


@dataclass(frozen=True)
class NestGraph:
    """A whole network: tensors, their buffers, and operators in order."""

    name: str
    tensors: dict[str, Tensor]
    buffers: dict[str, int]
    """Buffer name -> elements. Tensors of one buffer share its element type."""
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ports: dict[str, str] = field(default_factory=dict)
    """Input or output name -> element type that the user sees."""
    codes: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Input or output name -> scale and zero of the integers in place of real values."""
    sized: dict[str, str] = field(default_factory=dict)
    """Output whose size is known only at run time -> the output with its extents."""
    registers: tuple[Register, ...] = ()
    """Lengths known only at run time; extents are those of their maximum."""

    @property
    def port_bytes(self) -> int:
        """Bytes of inputs and outputs."""
        ports = (self.tensors[name] for name in (*self.inputs, *self.outputs))
        return sum(tensor.elements * size_of(tensor.dtype) for tensor in ports)

    def buffer_of(self, tensor: str) -> str:
        return self.tensors[tensor].storage.buffer


def same_graph(one: NestGraph, other: NestGraph) -> bool:
    """Whether graphs that one pass made of the same graph are the same; numbers of a constant that
    are made when they are asked for follow from its name then."""

    def same(a: Tensor, b: Tensor) -> bool:
        if a is b:
            return True
        narrow = [None if each.narrow is None else each.narrow.outline for each in (a, b)]
        there = isinstance(a.data, np.ndarray) and isinstance(b.data, np.ndarray)
        data = np.array_equal(a.data, b.data) if there else type(a.data) is type(b.data)  # type: ignore[arg-type]
        return narrow[0] == narrow[1] and a.digits == b.digits and data

    pairs = zip(one.tensors.items(), other.tensors.items(), strict=False)
    return one == other and all(m == n and same(a, b) for (m, a), (n, b) in pairs)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a dense tensor, last dimension fastest."""
    return contiguous(shape, 1)


def dense(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a dense tensor whose axes lie in `order`, slowest first."""
    packed = row_major(tuple(shape[axis] for axis in order))
    strides = [0] * len(shape)
    for axis, stride in zip(order, packed, strict=True):
        strides[axis] = stride
    return tuple(strides)


def order_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Axes from slowest to fastest; dimensions of extent 1 and repetitions keep their place."""
    return tuple(sorted(range(len(shape)), key=lambda a: (-strides[a] if shape[a] > 1 else 0, a)))
