"""A constant added per channel becomes the bias of the product before it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from compiler.nest.base import NestPass
from compiler.nest.build import identity
from compiler.nest.fold_conversions import joined
from compiler.nest.ir import Access, Nest, NestGraph, Step, Tensor
from compiler.nest.rewrite import private, producers, readers, with_steps
from compiler.options import Omittable
from compiler.passes import Result
from simmodel.dtype import is_float


@dataclass(frozen=True)
class FoldBias(NestPass, Omittable):
    """An addition of a constant that runs over the columns of a product is its bias.

    before:
        p[m, n] = sum k: a[m, k] * b[k, n]
        y[d0, d1] = add(p[d0, d1], c[d1])
    after:
        y[m, n] = sum k: a[m, k] * b[k, n]  + c[n]
    """

    def apply(self, ir: NestGraph) -> Result[NestGraph]:
        removable, made, read = private(ir), producers(ir), readers(ir)
        tensors = dict(ir.tensors)
        buffers = dict(ir.buffers)
        steps: list[Step | None] = list(ir.steps)
        for position, step in enumerate(ir.steps):
            if not isinstance(step, Nest) or step.function != "add" or not step.elementwise:
                continue
            for product, constant in (step.operands, step.operands[::-1]):
                at = made.get(product.tensor)
                producer = None if at is None else steps[at]
                if (
                    at is None
                    or not isinstance(producer, Nest)
                    or not _takes_bias(producer, tensors)
                ):
                    continue
                if product.tensor not in removable or len(read[product.tensor]) > 1:
                    continue
                if not identity(product, step.rank) or not _per_column(constant, producer, tensors):
                    continue
                real = _as_fp32(tensors, buffers, constant)
                steps[at] = replace(joined(producer, step), bias=real)
                made[step.tensor] = at
                steps[position] = None
                break
        folded = with_steps(replace(ir, tensors=tensors, buffers=buffers), steps)
        return Result(folded, folded != ir)


def _takes_bias(producer: Nest, tensors: dict[str, Tensor]) -> bool:
    free = producer.bias is None and producer.multiplier is None and producer.scale is None
    unclipped = producer.low == -math.inf and producer.high == math.inf
    return free and unclipped and producer.contraction and is_float(tensors[producer.tensor].dtype)


def _per_column(constant: Access, producer: Nest, tensors: dict[str, Tensor]) -> bool:
    """Whether the constant varies only along dims that the weights have and the input has not."""
    tensor = tensors[constant.tensor]
    if tensor.data is None or constant.scale is not None or constant.zero != 0:
        return False
    used = {dim for affine in constant.index for dim, _ in affine.terms}
    left, right = producer.operands
    return all(right.uses(dim) and not left.uses(dim) for dim in used)


def _as_fp32(tensors: dict[str, Tensor], buffers: dict[str, int], constant: Access) -> Access:
    tensor = tensors[constant.tensor]
    if tensor.dtype == "fp32" or tensor.data is None:
        return constant
    name = f"{tensor.name}:fp32"
    storage = replace(tensor.storage, buffer=name, offset=0)
    buffers[name] = buffers[tensor.storage.buffer]
    data = tensor.data if tensor.exact is None else tensor.exact
    tensors[name] = replace(
        tensor, name=name, dtype="fp32", storage=storage, data=data.astype("float32"), exact=None
    )
    return replace(constant, tensor=name)
