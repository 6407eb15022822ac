"""Values that products read in blocks of a microscaling format.

    x.blocks[m, k] = blocks over r of x[m, 32 k + r]                 32 numbers and their scale
    y[m, n]        = sum k: x.blocks[m, k] * w.mxfp8[k, n]           of 32 products each

The one idea: the element type of such a tensor is a block, so whoever places, copies or cuts
tensors knows nothing of it; the reduction has as many fewer steps, and weights are such blocks too.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from compiler.errors import operator_name
from compiler.lowering.node import Lowering, Node, NoNest, numbers_of
from compiler.tensor_ir.nest import Access, Array, Dim, Nest, Tensor, at, order_of
from simmodel.arch.dtype import NUMPY, holds, to_blocks
from simmodel.arch.element_types import MX_BITS, per_block
from simmodel.arch.lazy_array import LazyArray


def rounded(node: Node) -> None:
    """Blocks of a value, where all that read it are products that can."""
    x, channels = node.tensor(0), len(node.attribute("shape")) > 2
    if node.node.outputs[0].is_graph_output():
        raise NoNest("numbers of a block are seen by products alone")
    for use in node.node.outputs[0].uses():
        if use.idx != 0 or not _multiplies(use.node, node.op, channels):
            raise NoNest(f"{operator_name(use.node.op_type)} multiplies no {node.op} by {node.op}")
    axis, rank = 1 if channels else len(x.shape) - 1, len(x.shape)
    parts = x.shape[axis] // per_block(node.op)
    rows = node.split_axis(x, axis, parts, f"{node.out}.rows")
    shape = (*x.shape[:axis], parts, *x.shape[axis + 1 :])
    order = order_of(x.shape, x.storage.strides)
    out = node.build.create(_blocks_of(node.out), shape, node.op, order)
    index = (*map(at, range(axis + 1)), at(rank), *map(at, range(axis + 1, rank)))
    dims = (*(Dim(f"d{a}", n) for a, n in enumerate(shape)), Dim("r", per_block(node.op)))
    node.build.add(Nest(out.name, dims, rank, "move", (Access(rows.name, index),), "blocks"))


def in_blocks(node: Node, axis: int) -> tuple[Tensor, tuple[str, LazyArray]] | None:
    """The first operand of a product, where it is there in blocks, and the name and numbers of its
    weights in blocks along their `axis`."""
    found = node.build.tensors.get(_blocks_of(str(node.value(0).name)))
    data = node.numbers(1)
    if found is None or data is None:
        return None
    size, shape = per_block(found.dtype), list(data.shape)
    shape[axis] //= size

    def numbers() -> Array:
        rows = np.moveaxis(np.asarray(data), axis, -1)
        return np.moveaxis(to_blocks(rows, found.dtype), -1, axis)

    made = LazyArray(tuple(shape), NUMPY[found.dtype], numbers)
    return found, (f"{node.value(1).name}.{found.dtype}", made)


def _blocks_of(value: str) -> str:
    return f"{value}.blocks"


def _multiplies(node: ir.Node, kind: str, channels: bool) -> bool:
    """Whether `node` is a product whose weights are constants that are all numbers of format
    `kind`: along the rows of a matrix, or the `channels` of a convolution."""
    data = None if node.domain or node.inputs[1] is None else numbers_of(node.inputs[1])
    if node.op_type != ("Conv" if channels else "MatMul") or data is None or data.ndim < 2:
        return False
    return holds(f"fp16_{kind}", np.asarray(data), 1 if channels else -2)


TABLE: dict[str, Lowering] = dict.fromkeys(MX_BITS, rounded)
