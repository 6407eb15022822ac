"""Vector family: constants, element-wise work, reductions and windows in up to three dimensions.

The datapath is fp32: operands are decoded as they are read (`(raw - zero) * scale`), the result is
clipped to [low, high] and encoded as it is written (divide, round half to even, add zero,
saturate). So casts, quantization and requantization are the `move` function with differing types.
Whole numbers among themselves are computed exactly (`simmodel.isa.functions`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

import simmodel.isa.operand_rules as rules
from simmodel.arch.dtype import Array, to_blocks
from simmodel.arch.element_types import is_float, per_block, product_type
from simmodel.arch.record import Arch, FunctionEngine
from simmodel.isa.base import (
    ConstantFill,
    Instruction,
    OperandTraffic,
    View,
    access_latency,
    decode,
    encode,
    operand_traffic,
)
from simmodel.isa.contraction import contraction
from simmodel.isa.functions import (
    BINARY,
    BLOCKS,
    JOINS,
    REDUCE,
    TERNARY,
    UNARY,
    Function,
    exact,
    stored,
    widened,
)
from simmodel.isa.matrix import centred, letters, moving, windows
from simmodel.isa.operand_rules import Breaches
from simmodel.isa.region import Operand, cached_property, merge_dimensions, walk


@lru_cache(maxsize=1 << 14)
def row_of(extent: int, longest: int) -> int:
    """Elements of a row when `extent` is cut into the fewest equal rows of at most `longest`."""
    if extent <= longest:
        return extent
    return next(row for row in range(longest, 0, -1) if extent % row == 0)


class VectorFamily(Instruction):
    """Base of vector instructions: a result, and the walk over elements."""

    UNIT: ClassVar[str] = "vector"

    dst: Operand

    @abstractmethod
    def cost(self) -> str:
        """Cost class: a field of `simmodel.arch.record.VectorCost`."""

    @abstractmethod
    def walked(self) -> tuple[int, ...]:
        """Extents of the dimensions that it walks, merged where all operands allow."""

    def startup(self, arch: Arch) -> int:
        own = arch.vector_startup(self.form, self.engine)
        return own + access_latency(arch, self.reads())

    def rows(self, arch: Arch) -> tuple[int, ...]:
        """Extents of its walk; a row longer than the engine's longest is several equal ones, if the
        engine has a dimension left for them."""
        walked, (rank, limit) = self.walked(), arch.reach(self.form, self.engine)
        if limit is None or walked[-1] <= limit or len(walked) >= rank:
            return walked
        row = row_of(walked[-1], limit)
        return (*walked[:-1], walked[-1] // row, row)

    def widest(self) -> int:
        """Bytes of the largest element that takes a lane: none is a block."""
        sizes = (o.itemsize for o in self.operands() if per_block(o.dtype) == 1)
        return max(sizes, default=1)

    def cycles(self, arch: Arch) -> int:
        """Each innermost row fills whole vectors of lanes, at the form's factor for each."""
        rows, lanes = self.rows(arch), arch.lane_engine(self.engine).elements(self.widest())
        vectors = math.prod(rows[:-1]) * math.ceil(rows[-1] / lanes)
        return math.ceil(vectors * arch.factor(self.form, self.cost(), self.engine))

    def unencodable(self, arch: Arch) -> str | None:
        engine, name = arch.lane_engine(self.engine), "the vector engine"
        if isinstance(engine, FunctionEngine):
            name = f"engine {self.engine}"
            if not engine.has_form(self.form):
                return f"{name} has no {self.form}"
        for operand in self.reads():
            if operand.memory not in engine.reads:
                return f"{name} does not read {operand.memory}"
        if self.dst.memory not in engine.writes:
            return f"{name} does not write {self.dst.memory}"
        for operand in (self.dst, *self.reads()):
            if not engine.has(operand.dtype):
                return f"{name} has no {operand.dtype}"
        return self._too_large(arch)

    def _too_large(self, arch: Arch) -> str | None:
        walked, (rank, limit) = self.rows(arch), arch.reach(self.form, self.engine)
        if len(walked) > rank:
            return f"{len(walked)} dimensions, the vector engine walks {rank}"
        if limit is not None and walked[-1] > limit:
            return f"extent {walked[-1]}, at most {limit}"
        return None


@dataclass(frozen=True, kw_only=True)
class Splat(VectorFamily, ConstantFill):
    """dst = value in every element."""

    MNEMONIC: ClassVar[str] = "vector.splat"

    def cost(self) -> str:
        return "simple"

    def walked(self) -> tuple[int, ...]:
        return walk((self.dst,))


@dataclass(frozen=True, kw_only=True)
class VectorInstruction(VectorFamily):
    """Base of vector instructions that compute: a function, and a result with clip."""

    function: str
    dst: Operand
    low: float = -math.inf
    high: float = math.inf

    TABLE: ClassVar[dict[str, Function]]
    """Its functions, from `simmodel.isa.functions`."""

    @property
    def form(self) -> str:
        return f"{self.MNEMONIC}.{self.function}"

    def definition(self) -> Function:
        """The function's entry in its table."""
        return self.TABLE[self.function]

    @cached_property
    def exact(self) -> bool:
        """Whether it computes with integers instead of fp32."""
        return exact(self.definition(), self.dst, *self.reads())

    def contract(self) -> Breaches:
        yield from rules.check_function(self.function, self.TABLE)
        yield from rules.ordered(self.low, self.high)
        yield from rules.distinct(self.dst)
        blocks = next((o.dtype for o in self.reads() if per_block(o.dtype) > 1), self.dst.dtype)
        if self.function not in ("move", "blocks") or blocks != self.dst.dtype:
            yield from rules.single(blocks)
        if self.function in self.TABLE and self.definition().bits and not self.exact:
            kinds = ", ".join(operand.dtype for operand in (self.dst, *self.reads()))
            yield "type", f"{self.function} of {kinds}, expected integers without a scale"

    def cost(self) -> str:
        return self.definition().cost

    def operand_values(self, view: View, *operands: Operand) -> list[Array]:
        if self.exact:
            return widened(*(view(operand) for operand in operands))
        return [decode(view(operand), operand) for operand in operands]

    def compute(self, values: Sequence[Array], *parameters: float) -> Array:
        return self.definition().meaning(exact=self.exact)(*values, *parameters)

    def store(self, values: Array, view: View) -> None:
        """Clip and encode the result."""
        if self.exact:
            out, wraps = view(self.dst), self.definition().wraps
            out[...] = stored(values, out.dtype, self.low, self.high, wraps=wraps)
            return
        if self.low > -math.inf or self.high < math.inf:
            values = np.clip(values, np.float32(self.low), np.float32(self.high))
        encode(values, self.dst, view(self.dst))


class _Elementwise(VectorInstruction):
    """Every operand has dst's shape (stride 0 where it repeats)."""

    def contract(self) -> Breaches:
        yield from super().contract()
        yield from rules.alike(self.dst, **dict(zip("abc", self.reads(), strict=False)))

    def walked(self) -> tuple[int, ...]:
        return walk((self.dst, *self.reads()))

    def execute(self, view: View) -> None:
        self.store(self.compute(self.operand_values(view, *self.reads())), view)


@dataclass(frozen=True, kw_only=True)
class Unary(_Elementwise):
    """dst = function(a); `parameters` are the function's constants (slopes and the like)."""

    MNEMONIC: ClassVar[str] = "vector.unary"
    TABLE: ClassVar[dict[str, Function]] = UNARY

    a: Operand
    parameters: tuple[float, ...] = ()

    def contract(self) -> Breaches:
        yield from super().contract()
        expected = self.TABLE[self.function].parameters if self.function in self.TABLE else ()
        if len(self.parameters) != len(expected):
            wanted = ", ".join(dict.fromkeys(expected)) or "none"
            yield "parameter", f"{len(self.parameters)} parameters, expected {wanted}"
        if self.function == "lookup" and self.a.itemsize > 1:
            yield "type", f"a is {self.a.dtype}, expected int8 or uint8 of a table"

    def execute(self, view: View) -> None:
        here, there = ((o.dtype, o.scale, o.zero) for o in (self.a, self.dst))
        clipped = self.low > -math.inf or self.high < math.inf
        if self.function == "move" and here == there and not clipped:
            view(self.dst)[...] = view(self.a)
            return
        self.store(self.compute(self.operand_values(view, self.a), *self.parameters), view)


@dataclass(frozen=True, kw_only=True)
class Binary(_Elementwise):
    """dst = function(a, b)."""

    MNEMONIC: ClassVar[str] = "vector.binary"
    TABLE: ClassVar[dict[str, Function]] = BINARY

    a: Operand
    b: Operand


@dataclass(frozen=True, kw_only=True)
class Ternary(_Elementwise):
    """dst = function(a, b, c)."""

    MNEMONIC: ClassVar[str] = "vector.ternary"
    TABLE: ClassVar[dict[str, Function]] = TERNARY

    a: Operand
    b: Operand
    c: Operand

    def macs(self) -> int:
        return self.dst.elements if self.function == "fma" else 0


@dataclass(frozen=True, kw_only=True)
class Reduce(VectorInstruction):
    """dst = function over the dimensions in which dst has extent 1 and a has more."""

    MNEMONIC: ClassVar[str] = "vector.reduce"
    TABLE: ClassVar[dict[str, Function]] = REDUCE | {"blocks": BLOCKS}

    a: Operand
    partial: Operand | None = None
    """An earlier result, of dst's shape, to combine with."""

    def contract(self) -> Breaches:
        yield from super().contract()
        yield from rules.alike(self.dst, partial=self.partial)
        outer, inner = self.a.shape, self.dst.shape
        if len(outer) != len(inner) or any(
            m not in (1, n) for n, m in zip(outer, inner, strict=True)
        ):
            yield "shape", f"dst {inner} of a {outer}, expected its extents or 1"
            return
        size, count = per_block(self.dst.dtype), math.prod(outer[axis] for axis in self._axes)
        if (self.function == "blocks") != (size > 1) or (size > 1 and count != size):
            yield "type", f"{self.function} of {count} numbers into {self.dst.dtype}"
        if size > 1 and (self.partial is not None or not self.low == -self.high == -math.inf):
            yield "parameter", f"blocks of {self.dst.dtype} are neither joined nor clipped"

    @property
    def _axes(self) -> tuple[int, ...]:
        """Those over which it reduces."""
        pairs = zip(self.a.shape, self.dst.shape, strict=True)
        return tuple(i for i, (n, m) in enumerate(pairs) if n > 1 and m == 1)

    def walked(self) -> tuple[int, ...]:
        return walk((self.a, self.dst))

    def execute(self, view: View) -> None:
        seen, *earlier = self.operand_values(view, *self.reads())
        if self.function == "blocks":
            rows = np.moveaxis(seen, self._axes, range(-len(self._axes), 0))
            blocks = to_blocks(rows.reshape(*self.dst.shape, -1), self.dst.dtype)
            view(self.dst)[...] = blocks[..., 0]
            return
        values = self.definition().apply(seen, axis=self._axes, keepdims=True)
        for each in earlier:
            values = BINARY[JOINS[self.function]].apply(values, each)
        self.store(values, view)


@dataclass(frozen=True, kw_only=True)
class Window(VectorInstruction):
    """dst[y, x, c] = function over a kernel window of a[y*s+i*d, x*s+j*d, c] (times w[i, j, c]).

    `function` sum or max; with weights the products are summed: a depthwise convolution.
    """

    MNEMONIC: ClassVar[str] = "vector.window"
    TABLE: ClassVar[dict[str, Function]] = REDUCE
    WEIGHTED: ClassVar[Function] = TERNARY["fma"]
    RANK: ClassVar[int] = 3
    """Dimensions of each operand; further ones of a result are loops."""

    a: Operand
    w: Operand | None = None
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    def contract(self) -> Breaches:
        yield from super().contract()
        operands = {"dst": self.dst, "a": self.a, "w": self.w}
        broken = tuple(rules.shaped(operands, {"dst": "yxc", "a": "hwc", "w": "ijc"}))
        yield from broken
        if not broken:
            steps = (self.stride, self.dilation)
            yield from rules.windowed(self.a.shape, self.dst.shape, self.kernel, steps)
        if self.w is None:
            return
        yield from rules.check_function(self.function, ("sum",))
        if self.w.shape[:2] != self.kernel:
            yield "shape", f"w {self.w.shape} has not the extents of kernel {self.kernel}"

    @property
    def form(self) -> str:
        return super().form if self.w is None else f"{self.MNEMONIC}.fma"

    def definition(self) -> Function:
        return super().definition() if self.w is None else self.WEIGHTED

    def walked(self) -> tuple[int, ...]:
        return self.dst.shape

    def cycles(self, arch: Arch) -> int:
        return super().cycles(arch) * math.prod(self.kernel)

    def macs(self) -> int:
        return 0 if self.w is None else self.dst.elements * math.prod(self.kernel)

    def execute(self, view: View) -> None:
        values, *weights = self.operand_values(view, *self.reads())
        rows, cols = self.dst.shape[-3], self.dst.shape[-2]
        seen = windows(values, rows, cols, self.kernel, (*self.stride, *self.dilation))
        positions = [(i, j) for i in range(self.kernel[0]) for j in range(self.kernel[1])]
        if weights:
            w = weights[0]
            terms = (seen[..., i, j, :] * w[..., None, None, i, j, :] for i, j in positions)
        else:
            terms = (seen[..., i, j, :] for i, j in positions)
        total = next(terms).copy()
        for term in terms:
            BINARY[JOINS[self.function]].apply(total, term, out=total)
        self.store(total, view)

    def _too_large(self, arch: Arch) -> str | None:
        _, limit = arch.reach(self.form)
        if limit is not None and self.dst.shape[-1] > limit:
            return f"extent {self.dst.shape[-1]}, at most {limit}"
        return None


@dataclass(frozen=True, kw_only=True)
class Product(VectorFamily):
    """dst = sums of products of a and w over the dimensions in which dst has extent 1.

    Exact: int32 of integers, fp32 of real values. Each operand has as many dimensions as dst, with
    extent 1 or stride 0 where it stands still.
    """

    MNEMONIC: ClassVar[str] = "vector.product"

    dst: Operand
    a: Operand
    w: Operand
    partial: Operand | None = None
    """Sums to start from, of dst's shape."""

    def contract(self) -> Breaches:
        yield from rules.alike(self.dst, partial=self.partial)
        extents = self._extents()
        for name, operand in (("dst", self.dst), ("a", self.a), ("w", self.w)):
            if len(operand.shape) != len(self.dst.shape):
                yield "shape", f"{name} {operand.shape}, expected {len(self.dst.shape)} dimensions"
            elif any(n not in (1, m) for n, m in zip(operand.shape, extents, strict=True)):
                yield "shape", f"{name} {operand.shape}, expected extents of {extents} or 1"
        yield from rules.multiplied(self.a, self.w, dst=self.dst, partial=self.partial)
        yield from rules.single(self.a.dtype)
        yield from rules.distinct(self.dst)

    def cost(self) -> str:
        return "multiply"

    def walked(self) -> tuple[int, ...]:
        """Extents in the order in which they are named, merged where every operand allows."""
        operands = (self.dst, self.a, self.w)
        dims = (
            (extent, tuple(_axis_stride(operand, axis) for operand in operands), False)
            for axis, extent in reversed(list(enumerate(self._extents())))
        )
        return tuple([extent for extent, _ in merge_dimensions(dims)]) or (1,)

    def _extents(self) -> tuple[int, ...]:
        shapes = (self.dst.shape, self.a.shape, self.w.shape)
        return tuple(max(column) for column in zip(*shapes, strict=False))

    @property
    def rate_type(self) -> str:
        """The type whose rate is that of its products."""
        return product_type(self.a.dtype, self.w.dtype)

    def widest(self) -> int:
        """Sums stay in registers, so the factors alone decide how many lanes a vector has."""
        return max(self.a.itemsize, self.w.itemsize)

    def traffic(self, arch: Arch) -> tuple[OperandTraffic, ...]:
        return (
            *(operand_traffic(arch, sums) for sums in self.reads()[2:]),
            *(self._streamed(operand, arch) for operand in (self.a, self.w)),
            operand_traffic(arch, self.dst, write=True),
        )

    def _streamed(self, operand: Operand, arch: Arch) -> OperandTraffic:
        """A factor that moves along the lanes is read again for each set of rows whose sums there
        are registers for, one that goes to all lanes for each vector of these."""
        extents = self._extents()
        lane = max((axis for axis, n in enumerate(extents) if n > 1), default=0)
        still = [
            n for axis, n in enumerate(extents) if not _axis_stride(operand, axis) and axis != lane
        ]
        times = math.prod(still)
        if extents and _axis_stride(operand, lane):
            times = math.ceil(times / max(1, arch.vector.product_rows))
        elif extents:
            times *= math.ceil(extents[lane] / arch.vector.elements(operand.itemsize))
        return operand_traffic(arch, operand, times=times)

    def macs(self) -> int:
        return math.prod(self._extents())

    def execute(self, view: View) -> None:
        rank = len(self.dst.shape)
        a, w, kept = (letters(operand, rank) for operand in (self.a, self.w, self.dst))
        left, right = (centred(view(o), o)[moving(o, rank)] for o in (self.a, self.w))
        total = contraction(left, a, right, w, "".join(n for n in kept if n in a + w))
        exact = np.float32 if is_float(self.a.dtype) else np.float64
        total = total.astype(exact, copy=False)
        total = total[tuple(slice(None) if n in a + w else None for n in kept)]
        if self.partial is not None:
            total = total + view(self.partial)[moving(self.dst, rank)].astype(exact)
        target = view(self.dst)
        target[moving(self.dst, rank)] = total.astype(target.dtype)


def _axis_stride(operand: Operand, axis: int) -> int:
    """Bytes by which `axis` moves an operand; 0: it does not."""
    return operand.strides[axis] if operand.shape[axis] > 1 else 0
