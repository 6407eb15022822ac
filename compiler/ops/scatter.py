"""New rows at places of a tensor that are known at run time.

A copy engine that takes a list of rows writes those alone; the tensor stays where it is. For
machines without one, few rows are compared with every place on the vector engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from compiler.graph.decompose_attention import COMPARED
from compiler.nest.ir import HostNode, Nest, Put, Storage, Tensor, row_major
from compiler.ops.node import Node


def put_of(node: Node) -> Put | None:
    """What a node writes into rows of its first input; None: another operator, or no whole rows."""
    found = _PUTS.get(node.op)
    if found is None or node.dtype() != node.tensor(0).dtype or not node.tensor(1).elements:
        return None
    return found(node)


def _tensor_scatter(node: Node) -> Put | None:
    given, update, axis = node.tensor(0), node.tensor(1), _axis(node)
    wraps = node.attribute("mode", "linear") == "circular" and update.shape[axis] > 1
    if wraps or not axis or not node.has(2) or update.dtype != given.dtype:
        return None
    return Put(node.out, node.tensor(2).name, axis, given.name, update.name, block=True)


def _scatter_nd(node: Node) -> Put | None:
    given, index, update = (node.tensor(position) for position in range(3))
    if node.attribute("reduction", "none") != "none" or index.shape[-1] != 1:
        return None
    if update.dtype != given.dtype or not update.elements:
        return None
    storage = replace(index.storage, strides=index.storage.strides[:-1])
    places = node.build.view(f"{node.out}.places", index.shape[:-1], storage, index)
    return Put(node.out, places.name, 0, given.name, update.name)


_PUTS: Mapping[str, Callable[[Node], Put | None]] = {
    "TensorScatter": _tensor_scatter,
    "ScatterND": _scatter_nd,
}


def _axis(node: Node) -> int:
    return int(node.attribute("axis", -2)) % len(node.shape())


def compared(node: Node) -> tuple[Nest, ...]:
    """Nests of a TensorScatter of few rows: each is compared with every place. Empty: another
    operator, or too many rows."""
    if node.op != "TensorScatter" or node.tensor(1).shape[_axis(node)] > COMPARED:
        return ()
    aside = replace(node.build, steps=[])  # with the tensors and buffers of the network
    own = replace(node, build=aside)
    made, update, shape, axis = own.tensor(0), own.tensor(1), own.shape(), _axis(own)
    aside.composite = aside.composite or own.out
    column = [1] * len(shape)
    column[axis] = shape[axis]
    places = aside.constant(
        f"{own.out}.ramp", np.arange(shape[axis], dtype=np.int32).reshape(column)
    )
    first = _first_rows(own)
    count = update.shape[axis]
    for number in range(count):
        name = f"{own.out}.row{number}"
        at = _placed(own, first, number, name)
        mask = aside.elementwise(f"{name}.here", _met(places, at), "equal", [places, at], "bool")
        offset = update.storage.offset + number * update.storage.strides[axis]
        cut = (*update.shape[:axis], 1, *update.shape[axis + 1 :])
        row = aside.view(f"{name}.new", cut, replace(update.storage, offset=offset), update)
        result = own.out if number == count - 1 else f"{name}.made"
        made = aside.elementwise(result, shape, "select", [mask, row, made], own.dtype())
    return tuple(step for step in aside.steps if not isinstance(step, HostNode))


def _first_rows(node: Node) -> Tensor:
    """Where each sample begins to write, one number along the first axis."""
    shape = node.shape()
    column = (shape[0], *(1 for _ in shape[1:]))
    if not node.has(2):
        return node.build.constant(f"{node.out}.first", np.zeros(column, np.int32))
    given = node.tensor(2)
    strides = (given.storage.strides[0], *row_major(column)[1:])
    storage = Storage(given.storage.buffer, given.storage.offset, strides)
    seen = node.build.view(f"{node.out}.at", column, storage, given)
    return node.build.elementwise(f"{node.out}.first", column, "move", [seen], "int32")


def _placed(node: Node, first: Tensor, number: int, name: str) -> Tensor:
    """Places of the new row `number` of each sample."""
    build, at = node.build, first
    if number:
        step = build.constant(f"{name}.step", np.array(number, np.int32))
        at = build.elementwise(f"{name}.at", first.shape, "add", [first, step], "int32")
    if node.attribute("mode", "linear") == "circular":
        extent = build.constant(f"{name}.extent", np.array(node.shape()[_axis(node)], np.int32))
        at = build.elementwise(f"{name}.turned", first.shape, "mod", [at, extent], "int32")
    return at


def _met(places: Tensor, at: Tensor) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(places.shape, at.shape))
