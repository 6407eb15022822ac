"""Rows of a table at places that are known at run time.

A copy engine that takes a list of rows loads those alone. For machines without one, and where it is
quicker, every result is compared with all places of a short axis on the vector engine.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from compiler.nest.ir import Access, Dim, HostNode, Nest, Pick, Storage, Tensor, at
from compiler.ops.node import Node

LONGEST = 1024
"""Positions that a place is compared with, at most: of a longer axis, as of a table of words, the
host reads the chosen rows alone."""


def pick_of(node: Node) -> Pick | None:
    """What a Gather picks by places that no view says, for machines whose copy engines take a list
    of rows; None: another operator, or another type than that of the table."""
    if node.op != "Gather" or node.dtype() != node.tensor(0).dtype:
        return None
    table, index = node.tensor(0), node.tensor(1)
    if not table.elements or not index.elements:
        return None
    return Pick(table.name, index.name, int(node.attribute("axis", 0)) % len(table.shape))


def compared(node: Node) -> tuple[Nest, ...]:
    """Nests that compare each place with all positions of a short axis. Empty: another operator,
    constant places, or too many of them."""
    pick = pick_of(node)
    if pick is None or node.data(1) is not None:
        return ()
    table, index, axis = node.tensor(0), node.tensor(1), pick.axis
    extent, made = table.shape[axis], node.shape()
    if extent > LONGEST or prod(made) * extent > node.limits.compared * (
        table.elements + prod(made)
    ):
        return ()
    aside = replace(node.build, steps=[])  # with the tensors and buffers of the network
    aside.composite = aside.composite or node.out
    own, behind = replace(node, build=aside), table.shape[axis + 1 :]
    here = _marked(own, index, extent, len(behind))
    chosen = _chosen(own, here, table, axis, len(index.shape))
    inner = axis + len(index.shape)  # of what is chosen, the axis that is picked from
    rank = len(made)
    dims = (*(Dim(f"d{n}", size) for n, size in enumerate(made)), Dim("r", extent))
    order = (*(at(n) for n in range(inner)), at(rank), *(at(n) for n in range(inner, rank)))
    truth = chosen.dtype != node.dtype()
    name = f"{node.out}.sum" if truth else node.out
    total = aside.create(name, made, chosen.dtype)
    aside.add(Nest(name, dims, rank, "move", (Access(chosen.name, order),), "sum"))
    if truth:
        aside.elementwise(node.out, made, "move", [total], node.dtype())
    return tuple(step for step in aside.steps if not isinstance(step, HostNode))


def _marked(node: Node, index: Tensor, extent: int, behind: int) -> Tensor:
    """Whether each place is each position of the axis; below 0 they count from its end."""
    build, out = node.build, node.out
    shape = (*index.shape, 1, *(1 for _ in range(behind)))
    strides = (*index.storage.strides, *(1 for _ in range(behind + 1)))
    storage = Storage(index.storage.buffer, index.storage.offset, strides)
    places = build.view(f"{out}.places", shape, storage, index)
    column = (extent, *(1 for _ in range(behind)))
    wide = (*index.shape, *column)
    met = []
    for name, first in (("front", 0), ("back", -extent)):
        ramp = np.arange(first, first + extent, dtype=np.int32).reshape(column)
        positions = build.constant(f"{out}.{name}", ramp, index.dtype)
        met.append(
            build.elementwise(f"{out}.at_{name}", wide, "equal", [places, positions], "bool")
        )
    return build.elementwise(f"{out}.here", wide, "or", met, "bool")


def _chosen(node: Node, here: Tensor, table: Tensor, axis: int, places: int) -> Tensor:
    """The table's elements where they are `here`, else zero; truths as integers, which add up."""
    build, storage = node.build, table.storage
    ahead = tuple(1 for _ in range(places))
    shape = (*table.shape[:axis], *ahead, *table.shape[axis:])
    strides = (*storage.strides[:axis], *ahead, *storage.strides[axis:])
    apart = Storage(storage.buffer, storage.offset, strides)
    source = build.view(f"{node.out}.table", shape, apart, table)
    kind = "int32" if table.dtype == "bool" else table.dtype
    nothing = build.constant(f"{node.out}.nothing", np.zeros((), np.int32), kind)
    wide = np.broadcast_shapes(here.shape, shape)
    return build.elementwise(f"{node.out}.chosen", wide, "select", [here, source, nothing], kind)
