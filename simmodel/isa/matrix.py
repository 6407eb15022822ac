"""Matrix family: array-sized tiles, matrix products, convolutions, also depthwise and by Winograd.

All of them compute

    sum   = partial + products of (a - a.zero) and (w - w.zero)      exact, int32 or fp32
    dst   = encode(clip((sum + bias) * multiplier + added))          write-back, where asked for

and differ in the shape of their operands. `partial` are sums from an earlier instruction.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from string import ascii_uppercase
from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

import simmodel.isa.operand_rules as rules
from simmodel.arch.base import ENTRIES
from simmodel.arch.dtype import NUMPY, Array, from_blocks
from simmodel.arch.element_types import WINOGRAD, accumulator_of, is_float, per_block, product_type
from simmodel.arch.matrix_cycles import (
    depthwise_cycles,
    product_cycles,
    streams,
    tile_limits,
    whole_tiles,
)
from simmodel.arch.record import Arch
from simmodel.isa.base import (
    Instruction,
    OperandTraffic,
    View,
    access_latency,
    decode,
    encode,
    operand_traffic,
)
from simmodel.isa.contraction import contraction, exact_type, largest
from simmodel.isa.functions import looked_up
from simmodel.isa.operand_rules import Breaches
from simmodel.isa.region import Address, Operand, cached_property

INFINITY = math.inf


@dataclass(frozen=True, kw_only=True)
class MatrixInstruction(Instruction):
    """Base of the matrix instructions: operands, accumulation and write-back.

    Rows of the array are output positions: of a batch, of lines, of columns.
    """

    UNIT: ClassVar[str] = "matrix"
    SPARED: ClassVar[tuple[str, ...]] = ("partial",)
    GRANULARITIES: ClassVar[tuple[str, ...]] = ("tile", "gemm", "conv")
    """Those of engines that have such instructions."""
    RESULT_RANK: ClassVar[int] = 4
    """Dimensions of dst, without those of surrounding loops."""

    dst: Operand
    a: Operand
    """Left operand: feature map."""
    w: Operand
    """Right operand: weights."""
    partial: Operand | None = None
    """Sums to start from, in the accumulator's type and dst's shape; where limits leave nothing of
    them, the sum starts here."""
    bias: Operand | None = None
    """One value per output channel, in the accumulator's type."""
    multiplier: Operand | None = None
    """fp32 factor per output channel that turns sums into output steps."""
    low: float = -INFINITY
    high: float = INFINITY
    """Clip, in output steps (before the zero point is added)."""
    table: tuple[float, ...] = ()
    """By the byte of an 8-bit result, the one that is written in its place."""
    added: Operand | None = None
    """Another tensor of dst's shape, in an encoding of its own: real values that are added."""
    middle: tuple[float, ...] = ()
    """Integers of dst's type to which sums are rounded before that: a step of theirs in the sums',
    its real value, zero point. The clip is one of real values then."""

    AXES: ClassVar[dict[str, str]]
    """Dimensions of dst, a and w, a letter each."""
    PRODUCT: ClassVar[tuple[str, str, str]]
    """The same of a, or its windows, of w and of dst, as they are multiplied."""

    def contract(self) -> Breaches:
        yield from rules.shaped({"dst": self.dst, "a": self.a, "w": self.w}, self.AXES)
        channels = self.dst.shape[-1:]
        yield from rules.alike(self.dst, partial=self.partial, added=self.added)
        for name, values in (("bias", self.bias), ("multiplier", self.multiplier)):
            if values is None or values.elements == 1:
                continue  # one for all channels
            if values.shape != (1,) * (len(values.shape) - 1) + channels:
                yield "shape", f"{name} has shape {values.shape}, expected {channels} or (1,)"
        yield from rules.multiplied(self.a, self.w, partial=self.partial, bias=self.bias)
        yield from rules.typed("multiplier", self.multiplier, "fp32")
        yield from rules.ordered(self.low, self.high)
        if self.table and (len(self.table) != ENTRIES or self.dst.dtype not in ("int8", "uint8")):
            yield "parameter", f"a table of {len(self.table)} for {self.dst.dtype}, expected 8 bits"
        if self.middle and (len(self.middle) != 3 or self.added is None):
            yield "parameter", "a step, its value and a zero point stand before what is added"
        yield from rules.distinct(self.dst)

    @property
    def lead(self) -> int:
        """Dimensions of surrounding loops, in front of its own."""
        return len(self.dst.shape) - self.RESULT_RANK

    @abstractmethod
    def extents(self) -> tuple[int, int, int, int]:
        """Output pixels, output channels, reduction length per kernel position in elements, which
        may be blocks, positions."""

    def windowed(self, a: Array) -> Array:
        """The left operand, of convolutions its windows."""
        return a

    @cached_property
    def _dims(self) -> tuple[str, ...]:
        """Those of a, w and dst, with loops that move them."""
        loops = (letters(operand, self.lead) for operand in (self.a, self.w, self.dst))
        return tuple(map(str.__add__, loops, self.PRODUCT))

    @cached_property
    def _moving(self) -> tuple[tuple[int | slice, ...], ...]:
        """Where a, w and dst are without the loops that do not move them."""
        return tuple(moving(operand, self.lead) for operand in (self.a, self.w, self.dst))

    @cached_property
    def _largest_product(self) -> int | None:
        """Of two centred operands, where these are integers."""
        kinds = [(NUMPY[o.dtype], o.zero) for o in (self.a, self.w)]
        if any(kind.kind not in "iu" for kind, _ in kinds):
            return None
        return math.prod(largest(kind, zero) for kind, zero in kinds)

    def sums(self, a: Array, w: Array) -> Array:
        """Exact sums of products, in dst's shape without the loops that do not move it."""
        a_dims, w_dims, out = self._dims
        left, right = a[self._moving[0]], w[self._moving[1]]
        kind = exact_type(left, right, math.prod(w.shape[:-1]), self._largest_product)
        left, right = left.astype(kind, "C", copy=False), right.astype(kind, "C", copy=False)
        # Windows of what has been converted: each element is converted once, not once per window.
        return contraction(self.windowed(left), a_dims, right, w_dims, out)

    def startup(self, arch: Arch) -> int:
        startup = arch.array(self.engine).startup.cycles(arch.clock)
        return startup + access_latency(arch, (self.a, self.w))

    def cycles(self, arch: Arch) -> int:
        return self.lasts(arch)

    def overlap(self, arch: Arch) -> int:
        return self.lasts(arch) - self.lasts(arch, behind=True)

    def lasts(self, arch: Arch, *, behind: bool = False) -> int:
        """Cycles of the array; `behind`: directly after another product."""
        extents, array = self.extents(), arch.array(self.engine)
        return int(product_cycles(array, self.rate_type, *extents, behind=behind))

    @cached_property
    def rate_type(self) -> str:
        """The type whose rate is that of its products."""
        return product_type(self.a.dtype, self.w.dtype)

    def traffic(self, arch: Arch) -> tuple[OperandTraffic, ...]:
        m, n, k, positions = self.extents()
        left, right = streams(arch.array(self.engine), m, n, k * positions)
        return (
            OperandTraffic(self.a, False, m * k * positions * self.a.itemsize * left),
            OperandTraffic(self.w, False, self.w.distinct * right),
            operand_traffic(arch, self.dst, write=True),
            *(operand_traffic(arch, extra) for extra in self.reads()[2:]),
        )

    def macs(self) -> int:
        m, n, k, positions = self.extents()
        return m * n * k * positions * per_block(self.a.dtype)

    def cycles_at_peak(self, arch: Arch) -> float:
        """Cycles of one array for its multiply-accumulates at the rate of their type; 0 without."""
        peak = arch.array(self.engine).peak(self.rate_type)
        return self.macs() / peak if peak else 0.0

    def execute(self, view: View) -> None:
        total = self.sums(centred(view(self.a), self.a), centred(view(self.w), self.w, -2))
        exact = np.float32 if is_float(self.a.dtype) else np.float64
        total = total.astype(exact, copy=False)
        if self.partial is not None:
            total = total + view(self.partial)[self._moving[2]].astype(exact)
        if self.bias is not None:
            total = total + self._per_channel(self.bias, view).astype(exact)
        if self.multiplier is not None:
            total = total.astype(np.float32) * self._per_channel(self.multiplier, view)
        if self.added is not None:
            total = self._with_added(total, self.added, view)
        if self.low > -INFINITY or self.high < INFINITY:
            total = np.clip(total, self.low, self.high)
        target = view(self.dst)[self._moving[2]]
        encode(total, self.dst, target)
        if self.table:
            target[...] = looked_up(target, *self.table)

    def _with_added(self, total: Array, added: Operand, view: View) -> Array:
        """Real values of sums, rounded to integers first where they are such, and what is added."""
        if self.middle:
            total = rounded_between(total, self.dst.dtype, *self.middle)
        more = decode(view(added)[self._moving[2]], added)
        return total.astype(np.float32, copy=False) + more

    def _per_channel(self, operand: Operand, view: View) -> Array:
        """Values per output channel, reshaped for sums without the loops that do not move dst."""
        values = view(operand)
        values = values.reshape(*values.shape[: self.lead], *(1,) * (self.RESULT_RANK - 1), -1)
        return values[self._moving[2]]

    def unencodable(self, arch: Arch) -> str | None:
        engine = arch.array(self.engine)
        if self.a.memory != engine.input or self.w.memory != engine.weights:
            return f"operands are read from {engine.input} and {engine.weights} only"
        if engine.granularity not in self.GRANULARITIES:
            return f"{self.engine} has granularity {engine.granularity}"
        if engine.peak(self.rate_type) == 0:
            return f"{self.engine} has no {self.rate_type} products"
        if engine.max_pixels is not None and self.extents()[0] > engine.max_pixels:
            return f"at most {engine.max_pixels} output pixels"
        if self.bias is not None and "bias" not in engine.writeback:
            return "no bias on write-back"
        if self.multiplier is not None and "requantize" not in engine.writeback:
            return "no requantization on write-back"
        clipped = self.low > -INFINITY or self.high < INFINITY
        if clipped and "clip" not in engine.writeback:
            return "no clip on write-back"
        if self.table and "table" not in engine.writeback:
            return "no table on write-back"
        if self.added is not None and "add" not in engine.writeback:
            return "no addition on write-back"
        if self.added is not None and self.added.memory != "local":
            return "what is added is read from local memory only"
        raw = self.dst.dtype == accumulator_of(self.a.dtype)
        if raw and self.dst.memory not in (engine.output, "local"):
            return f"sums go to {engine.output}"
        return None


def rounded_between(values: Array, dtype: str, step: float, scale: float, zero: float) -> Array:
    """`values` as integers of `dtype` have them, in steps of `step` that stand for `scale`."""
    stored = np.empty(values.shape, NUMPY[dtype])
    encode(values, Operand("", Address(0), (), (), dtype, step, int(zero)), stored)
    return decode(stored, Operand("", Address(0), (), (), dtype, scale, int(zero)))


def centred(raw: Array, operand: Operand, channels: int = -1) -> Array:
    """Raw values less the zero point of `operand`; numbers of blocks along the axis `channels`."""
    if per_block(operand.dtype) > 1:
        rows = np.moveaxis(from_blocks(raw), -1, channels)
        return rows.reshape(*raw.shape[:channels], -1, *raw.shape[channels:][1:])
    return raw if operand.zero == 0 else raw.astype(np.int32) - operand.zero


def moving(operand: Operand, lead: int) -> tuple[int | slice, ...]:
    """Index of an array without those of its `lead` first dimensions that do not move `operand`."""
    front = zip(operand.shape[:lead], operand.strides[:lead], strict=True)
    return tuple(slice(None) if extent > 1 and stride else 0 for extent, stride in front)


def letters(operand: Operand, lead: int) -> str:
    """A letter for each of the `lead` first dimensions that moves the operand."""
    index = moving(operand, lead)
    return "".join(name for name, own in zip(ascii_uppercase, index, strict=False) if own != 0)


@dataclass(frozen=True, kw_only=True)
class Gemm(MatrixInstruction):
    """dst[b, y, x, n] = a[b, y, x, k] x w[k, n]: a whole tile's product."""

    MNEMONIC: ClassVar[str] = "matrix.gemm"
    GRANULARITIES: ClassVar[tuple[str, ...]] = ("gemm", "conv")
    AXES: ClassVar[dict[str, str]] = {"dst": "byxn", "a": "byxk", "w": "kn"}
    PRODUCT: ClassVar[tuple[str, str, str]] = ("byxk", "kn", "byxn")

    def extents(self) -> tuple[int, int, int, int]:
        return math.prod(self.a.shape[-4:-1]), self.w.shape[-1], self.a.shape[-1], 1


@dataclass(frozen=True, kw_only=True)
class Tile(Gemm):
    """dst[b, y, x, n] = a[b, y, x, k] x w[k, n]; k and n no larger than the array."""

    MNEMONIC: ClassVar[str] = "matrix.tile"
    GRANULARITIES: ClassVar[tuple[str, ...]] = ("tile", "gemm", "conv")

    def unencodable(self, arch: Arch) -> str | None:
        _, n, k, _ = self.extents()
        rows, cols = tile_limits(arch.array(self.engine), self.a.dtype)
        if k > rows or n > cols:
            return f"a tile covers at most {rows} x {cols} weights"
        return super().unencodable(arch)


def windows(
    a: Array, rows: int, cols: int, kernel: tuple[int, int], steps: tuple[int, ...]
) -> Array:
    """View [..., y, x, i, j, c] of the kernel windows of a[..., h, w, c]; steps: sy, sx, dy, dx."""
    *lead, high, wide, deep = a.strides
    sy, sx, dy, dx = steps
    shape = (*a.shape[:-3], rows, cols, *kernel, a.shape[-1])
    strides = (*lead, high * sy, wide * sx, high * dy, wide * dx, deep)
    return as_strided(a, shape, strides, writeable=False)


@dataclass(frozen=True, kw_only=True)
class Windowed(MatrixInstruction):
    """Base of convolutions: kernel, stride, dilation; the input has its border in place."""

    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    def contract(self) -> Breaches:
        broken = tuple(super().contract())
        yield from broken
        if not any(rule == "shape" for rule, _ in broken):
            steps = (self.stride, self.dilation)
            yield from rules.windowed(self.a.shape[1:], self.dst.shape[1:], self.kernel, steps)

    @property
    def kernel(self) -> tuple[int, int]:
        """Positions, lines and columns."""
        return self.w.shape[self.lead], self.w.shape[self.lead + 1]

    def windowed(self, a: Array) -> Array:
        """View [..., b, y, x, i, j, c] of the input."""
        rows, cols = self.dst.shape[-3], self.dst.shape[-2]
        return windows(a, rows, cols, self.kernel, (*self.stride, *self.dilation))

    def traffic(self, arch: Arch) -> tuple[OperandTraffic, ...]:
        """The engine forms the windows: input is read once for each time it is streamed."""
        _, *others = super().traffic(arch)
        return (operand_traffic(arch, self.a, times=self.passes(arch)), *others)

    def passes(self, arch: Arch) -> int:
        """How often the input is streamed: again for each set of columns."""
        m, n, k, positions = self.extents()
        left, _ = streams(arch.array(self.engine), m, n, k * positions)
        return int(left)


@dataclass(frozen=True, kw_only=True)
class Conv(Windowed):
    """dst[b, y, x, n] = sum over i, j, c of a[b, y*s+i*d, x*s+j*d, c] w[i, j, c, n]."""

    MNEMONIC: ClassVar[str] = "matrix.conv"
    GRANULARITIES: ClassVar[tuple[str, ...]] = ("conv",)
    AXES: ClassVar[dict[str, str]] = {"dst": "byxn", "a": "bhwc", "w": "ijcn"}
    PRODUCT: ClassVar[tuple[str, str, str]] = ("byxijc", "ijcn", "byxn")

    def extents(self) -> tuple[int, int, int, int]:
        i, j, c, n = self.w.shape[-4:]
        return math.prod(self.dst.shape[-4:-1]), n, c, i * j


@dataclass(frozen=True, kw_only=True)
class WinogradConv(Conv):
    """Conv of integers by Winograd: 3 x 3 kernels, steps of 1, fewer products.

    Of integers the transforms are exact, so that sums are those of all products. Where memory holds
    transformed kernels, w has their shape, and the kernel itself in its corner.
    """

    MNEMONIC: ClassVar[str] = "matrix.winograd"

    outputs: int = 2
    """Lines and columns of a tile."""

    def contract(self) -> Breaches:
        broken = tuple(super().contract())
        yield from broken
        if any(rule == "shape" for rule, _ in broken):
            return
        if super().kernel not in ((3, 3), self.frame):
            yield "shape", f"w is {self.w.shape}, expected a kernel of 3 x 3"
        for name, steps in (("stride", self.stride), ("dilation", self.dilation)):
            if steps != (1, 1):
                yield "parameter", f"{name} {steps}, expected 1"
        if self.rate_type not in WINOGRAD:
            tile = f"{self.outputs} x {self.outputs} outputs of {self.a.dtype}"
            yield "parameter", f"tiles of {tile}, expected 2 or 4 of integers"

    @property
    def kernel(self) -> tuple[int, int]:
        return 3, 3

    @property
    def frame(self) -> tuple[int, int]:
        """Numbers of a transformed kernel, lines and columns."""
        return self.outputs + 2, self.outputs + 2

    def extents(self) -> tuple[int, int, int, int]:
        pixels, n, k, _ = super().extents()
        return pixels, n, k, 9

    def sums(self, a: Array, w: Array) -> Array:
        return super().sums(a, w[..., :3, :3, :, :])

    def unencodable(self, arch: Arch) -> str | None:
        winograd = arch.matrix.winograd
        stored = winograd is not None and winograd.stored
        if super().kernel != (self.frame if stored else (3, 3)):
            return f"kernels are stored {'transformed' if stored else 'as they are'}"
        return super().unencodable(arch)

    def lasts(self, arch: Arch, *, behind: bool = False) -> int:
        _, n, k, positions = self.extents()
        batch, y, x = self.dst.shape[-4:-1]
        kind, m = self.rate_type, batch * whole_tiles(self.rate_type, y, x)
        return int(product_cycles(arch.matrix, kind, m, n, k, positions, behind=behind))

    @cached_property
    def rate_type(self) -> str:
        return f"{product_type(self.a.dtype, self.w.dtype)}_winograd{self.outputs}"


@dataclass(frozen=True, kw_only=True)
class DepthwiseConv(Windowed):
    """dst[b, y, x, c] = sum over i, j of a[b, y*s+i*d, x*s+j*d, c] w[i, j, c]."""

    MNEMONIC: ClassVar[str] = "matrix.depthwise"
    AXES: ClassVar[dict[str, str]] = {"dst": "byxc", "a": "bhwc", "w": "ijc"}

    def contract(self) -> Breaches:
        yield from super().contract()
        yield from rules.single(self.a.dtype)

    def extents(self) -> tuple[int, int, int, int]:
        i, j, c = self.w.shape[-3:]
        return math.prod(self.dst.shape[-4:-1]), c, 1, i * j

    def lasts(self, arch: Arch, *, behind: bool = False) -> int:
        pixels, channels, _, taps = self.extents()
        dtype, array = product_type(self.a.dtype), arch.array(self.engine)
        return depthwise_cycles(array, dtype, pixels, channels, taps, behind=behind)

    def sums(self, a: Array, w: Array) -> Array:
        seen = self.windowed(a)
        exact: type = np.float32 if is_float(self.a.dtype) else np.int64
        if self.a.itemsize == 1:
            exact = np.int32
        total: Array = np.zeros(self.dst.shape, exact)
        for i in range(w.shape[-3]):
            for j in range(w.shape[-2]):
                weights: Array = w[..., None, None, None, i, j, :].astype(exact)
                total += seen[..., i, j, :].astype(exact) * weights
        still = tuple(axis for axis, own in enumerate(self._moving[2]) if own == 0)
        result: Array = total.sum(axis=still, dtype=exact) if still else total
        return result

    def passes(self, arch: Arch) -> int:
        """Every column reads a channel of its own: once in all."""
        return 1

    def unencodable(self, arch: Arch) -> str | None:
        able = arch.array(self.engine).depthwise
        return super().unencodable(arch) if able else f"{self.engine} has no depthwise products"
