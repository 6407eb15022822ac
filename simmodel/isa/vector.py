"""Vector family: constants, element-wise work, reductions and windows in up to three dimensions.

The datapath is fp32: operands are decoded as they are read (`(raw - zero) * scale`), the result is
clipped to [low, high] and encoded as it is written (divide, round half to even, add zero,
saturate). So casts, quantization and requantization are the `move` function with differing types.
Whole numbers among themselves are computed exactly (`simmodel.isa.whole`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from simmodel.arch import Arch
from simmodel.isa.base import Array, Instruction, View, access_latency, decode, encode
from simmodel.isa.contract import (
    Breaches,
    alike,
    distinct,
    known,
    ordered,
    shaped,
    storable,
    windowed,
)
from simmodel.isa.functions import BINARY, COMBINE, REDUCE, TERNARY, UNARY, Function, exact
from simmodel.isa.matrix import windows
from simmodel.isa.whole import stored, widened
from simmodel.region import Operand, walk


def vector_cycles(arch: Arch, walked: tuple[int, ...], itemsize: int, factor: float) -> int:
    """Cycles to walk the elements of `walked`, innermost last, at `factor` a vector of lanes.

    Each innermost row fills whole vectors of lanes; `itemsize` is the widest operand's.
    """
    engine = arch.vector
    elements = engine.elements(itemsize)
    vectors = math.prod(walked[:-1]) * math.ceil(walked[-1] / elements) if walked else 1
    return math.ceil(vectors * factor)


@lru_cache(maxsize=1 << 14)
def row_of(extent: int, longest: int) -> int:
    """Elements of each of the fewest equal rows of at most `longest` that `extent` falls into."""
    if extent <= longest:
        return extent
    return next(row for row in range(longest, 0, -1) if extent % row == 0)


class VectorFamily(Instruction):
    """What the vector engine executes: a result, and the walk over elements."""

    dst: Operand

    @abstractmethod
    def cost(self) -> str:
        """Cost class: a field of `simmodel.arch.VectorCost`."""

    @abstractmethod
    def walked(self) -> tuple[int, ...]:
        """Extents of the dimensions that it walks, merged where every operand allows."""

    def writes(self) -> tuple[Operand, ...]:
        return (self.dst,)

    def startup(self, arch: Arch) -> int:
        return arch.vector.startup.cycles(arch.clock) + access_latency(arch, self.reads())

    def rows(self, arch: Arch) -> tuple[int, ...]:
        """What it walks, a row that is longer than the engine's longest as several equal ones,
        where the engine has a dimension left for them."""
        walked, (rank, limit) = self.walked(), arch.reach(self.form)
        if limit is None or walked[-1] <= limit or len(walked) >= rank:
            return walked
        row = row_of(walked[-1], limit)
        return (*walked[:-1], walked[-1] // row, row)

    def cycles(self, arch: Arch) -> int:
        widest = max(operand.itemsize for operand in (self.dst, *self.reads()))
        factor = arch.factor(self.form, self.cost())
        return vector_cycles(arch, self.rows(arch), widest, factor)

    def unencodable(self, arch: Arch) -> str | None:
        engine = arch.vector
        if not arch.isa.has(self.form):
            return f"{arch.name} has no {self.form}"
        for operand in self.reads():
            if operand.memory not in engine.reads:
                return f"the vector engine does not read {operand.memory}"
        if self.dst.memory not in engine.writes:
            return f"the vector engine does not write {self.dst.memory}"
        for operand in (self.dst, *self.reads()):
            if not engine.has(operand.dtype):
                return f"the vector engine has no {operand.dtype}"
        return self._too_large(arch)

    def _too_large(self, arch: Arch) -> str | None:
        walked, (rank, limit) = self.rows(arch), arch.reach(self.form)
        if len(walked) > rank:
            return f"{len(walked)} dimensions, the vector engine walks {rank}"
        if limit is not None and walked[-1] > limit:
            return f"extent {walked[-1]}, at most {limit}"
        return None


@dataclass(frozen=True, kw_only=True)
class Splat(VectorFamily):
    """dst = value in every element."""

    MNEMONIC: ClassVar[str] = "vector.splat"

    dst: Operand
    value: float = 0.0
    """Raw value."""

    def cost(self) -> str:
        return "simple"

    def walked(self) -> tuple[int, ...]:
        return walk((self.dst,))

    def reads(self) -> tuple[Operand, ...]:
        return ()

    def contract(self) -> Breaches:
        yield from storable("value", self.value, self.dst.dtype)

    def execute(self, view: View) -> None:
        target = view(self.dst)
        target[...] = np.asarray(self.value).astype(target.dtype)


@dataclass(frozen=True, kw_only=True)
class VectorInstruction(VectorFamily):
    """What those that compute share: a function, and a result with clip."""

    function: str
    dst: Operand
    low: float = -math.inf
    high: float = math.inf

    TABLE: ClassVar[dict[str, Function]]
    """The functions that there are, from `simmodel.isa.functions`."""

    @property
    def form(self) -> str:
        return f"{self.MNEMONIC}.{self.function}"

    def definition(self) -> Function:
        """The function's entry in its table."""
        return self.TABLE[self.function]

    @cached_property
    def exact(self) -> bool:
        """Whether it computes with whole numbers instead of fp32."""
        return exact(self.definition(), self.dst, *self.reads())

    def contract(self) -> Breaches:
        yield from known(self.function, self.TABLE)
        yield from ordered(self.low, self.high)
        yield from distinct(self.dst)
        if self.function in self.TABLE and self.definition().bits and not self.exact:
            kinds = ", ".join(operand.dtype for operand in (self.dst, *self.reads()))
            yield "type", f"{self.function} of {kinds}, expected integers without a scale"

    def cost(self) -> str:
        return self.definition().cost

    def unencodable(self, arch: Arch) -> str | None:
        rounded = self.definition().rounds_to
        if rounded is not None and rounded not in arch.vector.types:
            return f"the vector engine has no {rounded}"
        return super().unencodable(arch)

    def seen(self, view: View, *operands: Operand) -> list[Array]:
        """Values of operands as it computes with them."""
        if self.exact:
            return widened(*(view(operand) for operand in operands))
        return [decode(view(operand), operand) for operand in operands]

    def compute(self, values: Sequence[Array], *parameters: float) -> Array:
        """Its function of `values`."""
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
        names = ("a", "b", "c")[: len(self.reads())]
        yield from alike(dict(zip(("dst", *names), (self.dst, *self.reads()), strict=True)), "dst")

    def walked(self) -> tuple[int, ...]:
        return walk((self.dst, *self.reads()))


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
            wanted = ", ".join(expected) or "none"
            yield "parameter", f"{len(self.parameters)} parameters, expected {wanted}"

    def reads(self) -> tuple[Operand, ...]:
        return (self.a,)

    def execute(self, view: View) -> None:
        if self.function == "move" and self.a.dtype == self.dst.dtype and self._plain():
            view(self.dst)[...] = view(self.a)
            return
        self.store(self.compute(self.seen(view, self.a), *self.parameters), view)

    def _plain(self) -> bool:
        same = (self.a.scale, self.a.zero) == (self.dst.scale, self.dst.zero)
        return same and self.low == -math.inf and self.high == math.inf


@dataclass(frozen=True, kw_only=True)
class Binary(_Elementwise):
    """dst = function(a, b)."""

    MNEMONIC: ClassVar[str] = "vector.binary"
    TABLE: ClassVar[dict[str, Function]] = BINARY

    a: Operand
    b: Operand

    def reads(self) -> tuple[Operand, ...]:
        return (self.a, self.b)

    def execute(self, view: View) -> None:
        self.store(self.compute(self.seen(view, self.a, self.b)), view)


@dataclass(frozen=True, kw_only=True)
class Ternary(_Elementwise):
    """dst = function(a, b, c)."""

    MNEMONIC: ClassVar[str] = "vector.ternary"
    TABLE: ClassVar[dict[str, Function]] = TERNARY

    a: Operand
    b: Operand
    c: Operand

    def reads(self) -> tuple[Operand, ...]:
        return (self.a, self.b, self.c)

    def macs(self) -> int:
        return self.dst.elements if self.function == "fma" else 0

    def execute(self, view: View) -> None:
        self.store(self.compute(self.seen(view, *self.reads())), view)


@dataclass(frozen=True, kw_only=True)
class Reduce(VectorInstruction):
    """dst = function over the dimensions in which dst has extent 1 and a has more."""

    MNEMONIC: ClassVar[str] = "vector.reduce"
    TABLE: ClassVar[dict[str, Function]] = REDUCE

    a: Operand
    partial: Operand | None = None
    """An earlier result, of dst's shape, to join in."""

    def contract(self) -> Breaches:
        yield from super().contract()
        yield from alike({"dst": self.dst, "partial": self.partial}, "dst")
        outer, inner = self.a.shape, self.dst.shape
        if len(outer) != len(inner) or any(
            m not in (1, n) for n, m in zip(outer, inner, strict=True)
        ):
            yield "shape", f"dst {inner} of a {outer}, expected its extents or 1"

    def reads(self) -> tuple[Operand, ...]:
        return (self.a,) if self.partial is None else (self.a, self.partial)

    def walked(self) -> tuple[int, ...]:
        return walk((self.a, self.dst))

    def execute(self, view: View) -> None:
        pairs = zip(self.a.shape, self.dst.shape, strict=True)
        axes = tuple(i for i, (n, m) in enumerate(pairs) if n > 1 and m == 1)
        seen, *earlier = self.seen(view, *self.reads())
        values = self.definition().apply(seen, axis=axes, keepdims=True)
        for each in earlier:
            values = COMBINE[self.function](values, each)
        self.store(values, view)


@dataclass(frozen=True, kw_only=True)
class Window(VectorInstruction):
    """dst[y, x, c] = function over a kernel window of a[y*s+i*d, x*s+j*d, c] (times w[i, j, c]).

    `function` sum or max; with weights the products are summed: a depthwise convolution.
    """

    MNEMONIC: ClassVar[str] = "vector.window"
    TABLE: ClassVar[dict[str, Function]] = REDUCE
    WEIGHTED: ClassVar[Function] = TERNARY["fma"]
    """What it does where it has weights."""
    RANK: ClassVar[int] = 3
    """Dimensions of each operand: whatever else a result has is looped over."""

    a: Operand
    w: Operand | None = None
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    def contract(self) -> Breaches:
        yield from super().contract()
        operands = {"dst": self.dst, "a": self.a, "w": self.w}
        broken = tuple(shaped(operands, {"dst": "yxc", "a": "hwc", "w": "ijc"}))
        yield from broken
        if not broken:
            steps = (self.stride, self.dilation)
            yield from windowed(self.a.shape, self.dst.shape, self.kernel, steps)
        if self.w is None:
            return
        yield from known(self.function, ("sum",))
        if self.w.shape[:2] != self.kernel:
            yield "shape", f"w {self.w.shape} has not the extents of kernel {self.kernel}"

    @property
    def form(self) -> str:
        return super().form if self.w is None else f"{self.MNEMONIC}.fma"

    def definition(self) -> Function:
        return super().definition() if self.w is None else self.WEIGHTED

    def reads(self) -> tuple[Operand, ...]:
        return (self.a,) if self.w is None else (self.a, self.w)

    def walked(self) -> tuple[int, ...]:
        return self.dst.shape

    def cycles(self, arch: Arch) -> int:
        return super().cycles(arch) * math.prod(self.kernel)

    def macs(self) -> int:
        return 0 if self.w is None else self.dst.elements * math.prod(self.kernel)

    def execute(self, view: View) -> None:
        values, *weights = self.seen(view, *self.reads())
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
            COMBINE[self.function](total, term, out=total)  # type: ignore[call-arg]
        self.store(total, view)

    def unencodable(self, arch: Arch) -> str | None:
        if not arch.vector.window:
            return "the vector engine has no windows"
        return super().unencodable(arch)

    def _too_large(self, arch: Arch) -> str | None:
        _, limit = arch.reach(self.form)
        if limit is not None and self.dst.shape[-1] > limit:
            return f"extent {self.dst.shape[-1]}, at most {limit}"
        return None
