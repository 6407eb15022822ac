"""Sums of products on the vector engine: a register for each sum, one multiply-add a lane.

    dst[x, n] = partial + sum over k of a[x, k] w[k, n]

What such a core has in the place of an array: it walks rows, reduction and lanes as it is told, the
last dimension in vectors of lanes; a value that stands still along the lanes goes to all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simmodel.arch import Arch
from simmodel.dtype import accumulator_of, is_float, product_type
from simmodel.isa.base import Array, Flow, View, granule
from simmodel.isa.contract import Breaches, alike, distinct, typed
from simmodel.isa.contraction import contraction
from simmodel.isa.vector import VectorFamily, vector_cycles
from simmodel.region import Operand


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
        yield from alike({"dst": self.dst, "partial": self.partial}, "dst")
        extents = self._extents()
        for name, operand in (("dst", self.dst), ("a", self.a), ("w", self.w)):
            if len(operand.shape) != len(self.dst.shape):
                yield "shape", f"{name} {operand.shape}, expected {len(self.dst.shape)} dimensions"
            elif any(n not in (1, m) for n, m in zip(operand.shape, extents, strict=True)):
                yield "shape", f"{name} {operand.shape}, expected extents of {extents} or 1"
        if product_type(self.a.dtype) != product_type(self.w.dtype):
            yield "type", f"a is {self.a.dtype} and w {self.w.dtype}, expected one type"
        sums = accumulator_of(self.a.dtype)
        yield from typed("dst", self.dst, sums)
        yield from typed("partial", self.partial, sums)
        yield from distinct(self.dst)

    def cost(self) -> str:
        return "multiply"

    def reads(self) -> tuple[Operand, ...]:
        return (self.a, self.w) if self.partial is None else (self.a, self.w, self.partial)

    def walked(self) -> tuple[int, ...]:
        """Extents in the order in which they are named, merged where every operand allows."""
        kept: list[tuple[int, tuple[int, ...]]] = []
        for axis, extent in reversed(list(enumerate(self._extents()))):
            steps = tuple(_step(operand, axis) for operand in (self.dst, self.a, self.w))
            if extent == 1:
                continue
            if kept and all(s == kept[-1][0] * t for s, t in zip(steps, kept[-1][1], strict=True)):
                kept[-1] = kept[-1][0] * extent, kept[-1][1]
            else:
                kept.append((extent, steps))
        return tuple(extent for extent, _ in reversed(kept)) or (1,)

    def _extents(self) -> tuple[int, ...]:
        shapes = (self.dst.shape, self.a.shape, self.w.shape)
        return tuple(max(column) for column in zip(*shapes, strict=False))

    def cycles(self, arch: Arch) -> int:
        """Sums stay in registers, so the factors alone decide how many lanes a vector has."""
        widest = max(self.a.itemsize, self.w.itemsize)
        factor = arch.factor(self.form, self.cost())
        return vector_cycles(arch, self.rows(arch), widest, factor)

    def traffic(self, arch: Arch) -> tuple[Flow, ...]:
        sums = self.reads()[2:]
        flows = [Flow(o, False, o.traffic(granule(arch, o.memory))) for o in sums]
        flows += [self._streamed(operand, arch) for operand in (self.a, self.w)]
        return (*flows, Flow(self.dst, True, self.dst.traffic(granule(arch, self.dst.memory))))

    def _streamed(self, operand: Operand, arch: Arch) -> Flow:
        """A factor that moves along the lanes is read again for each set of rows whose sums there
        are registers for, one that goes to all lanes for each vector of these."""
        extents = self._extents()
        lane = max((axis for axis, n in enumerate(extents) if n > 1), default=0)
        still = [n for axis, n in enumerate(extents) if not _step(operand, axis) and axis != lane]
        times = math.prod(still)
        if extents and _step(operand, lane):
            times = math.ceil(times / max(1, arch.vector.product_rows))
        elif extents:
            times *= math.ceil(extents[lane] / arch.vector.elements(operand.itemsize))
        return Flow(operand, False, times * operand.traffic(granule(arch, operand.memory)))

    def macs(self) -> int:
        return math.prod(self._extents())

    def unencodable(self, arch: Arch) -> str | None:
        if not arch.vector.product_rows:
            return "the vector engine has no products"
        return super().unencodable(arch)

    def execute(self, view: View) -> None:
        names = [chr(ord("a") + axis) for axis in range(len(self.dst.shape))]
        sides, letters = [], []
        for operand in (self.a, self.w):
            moving = [bool(_step(operand, axis)) for axis in range(len(names))]
            raw = view(operand)[tuple(slice(None) if moves else 0 for moves in moving)]
            sides.append(raw if operand.zero == 0 else raw.astype(np.int32) - operand.zero)
            letters.append("".join(n for n, moves in zip(names, moving, strict=True) if moves))
        kept = [bool(_step(self.dst, axis)) for axis in range(len(names))]
        both = set(letters[0]) & set(letters[1])
        for side, own in enumerate(letters):
            # What one operand alone is summed over is added up first.
            lone = [n for n, stays in zip(names, kept, strict=True)
                    if not stays and n in own and n not in both]  # fmt: skip
            wide = sides[side].astype(np.float64 if lone else sides[side].dtype, copy=False)
            sides[side] = wide.sum(tuple(own.index(n) for n in lone)) if lone else wide
            letters[side] = "".join(n for n in own if n not in lone)
        out = "".join(
            n for n, stays in zip(names, kept, strict=True)
            if stays and (n in letters[0] or n in letters[1])
        )  # fmt: skip
        total = contraction(sides[0], letters[0], sides[1], letters[1], out)
        self._store(total, [n in out for n in names], kept, view)

    def _store(self, total: Array, present: list[bool], kept: list[bool], view: View) -> None:
        """Add what there was, and write sums to where they belong; `total` has the dimensions that
        are `present`, the result those that are `kept`."""
        exact = np.float32 if is_float(self.a.dtype) else np.float64
        own = tuple(slice(None) if stays else 0 for stays in kept)
        there = [p for p, stays in zip(present, kept, strict=True) if stays]
        total = total.astype(exact, copy=False)
        total = total[tuple(slice(None) if p else None for p in there)]
        if self.partial is not None:
            total = total + view(self.partial)[own].astype(exact)
        target = view(self.dst)
        target[own] = total.astype(target.dtype)


def _step(operand: Operand, axis: int) -> int:
    """Bytes by which `axis` moves an operand; 0: it stands still."""
    return operand.strides[axis] if operand.shape[axis] > 1 else 0
