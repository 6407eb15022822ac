"""Clipping activations become part of the operator before them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from compiler.nest.base import NestPass
from compiler.nest.build import identity
from compiler.nest.fold_conversions import joined
from compiler.nest.ir import Nest, NestGraph, Step
from compiler.nest.rewrite import private, producers, readers, with_steps
from compiler.options import Omittable
from compiler.passes import Result


@dataclass(frozen=True)
class FoldClips(NestPass, Omittable):
    """Relu and Clip move into the result of the operator before them.

    before:
        c[n, o, h, w] = sum(x[...] * k[...])
        r[d0, d1, d2, d3] = relu(c[d0, d1, d2, d3])
    after:
        r[n, o, h, w] = clip(sum(x[...] * k[...]), 0, inf)
    """

    def apply(self, ir: NestGraph) -> Result[NestGraph]:
        removable, made, read = private(ir), producers(ir), readers(ir)
        steps: list[Step | None] = list(ir.steps)
        for position, step in enumerate(ir.steps):
            tail = _as_clip(step) if isinstance(step, Nest) else None
            if tail is None:
                continue
            source = tail.operands[0].tensor
            at = made.get(source)
            producer = None if at is None else steps[at]
            if at is None or not isinstance(producer, Nest) or source not in removable:
                continue
            if len(read[source]) > 1 or not _clippable(producer):
                continue
            steps[at] = joined(producer, tail)
            made[tail.tensor] = at
            steps[position] = None
        folded = with_steps(ir, steps)
        return Result(folded, folded != ir)


def _as_clip(nest: Nest) -> Nest | None:
    """`nest` as a `move` with limits, or None when it is something else."""
    if not nest.elementwise or nest.function not in ("move", "relu"):
        return None
    read = nest.operands[0]
    if read.scale is not None or read.zero != 0 or not identity(read, nest.rank):
        return None
    if nest.function == "relu":
        return replace(nest, low=max(nest.low, 0.0))
    return nest if nest.low > -math.inf or nest.high < math.inf else None


def _clippable(producer: Nest) -> bool:
    """Whether the producer's result is still a real number that a clip may follow."""
    return producer.scale is None and producer.zero == 0 and producer.high == math.inf
