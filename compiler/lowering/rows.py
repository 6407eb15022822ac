"""Gather and scatter of rows at indices known only at run time.

A copy engine that takes a list of rows loads only those. On machines without one, and where it is
faster, every index is compared with all positions of a short axis on the vector engine.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from operator import itemgetter

import numpy as np

from compiler.frontend.operators.attention import COMPARED
from compiler.lowering.node import Node
from compiler.tensor_ir.build import along, reshaped
from compiler.tensor_ir.nest import Access, Dim, Nest, Pick, Put, Tensor, at

LONGEST = 1024
"""Most positions that an index is compared with: of a longer axis, as of a table of words, the host
gathers."""


def pick_of(node: Node) -> Pick | None:
    """The gather of a Gather node with computed indices, for copy engines that take a list of rows;
    None: another operator, or another type than that of the table."""
    if node.op != "Gather" or node.dtype() != node.tensor(0).dtype:
        return None
    table, index = node.tensor(0), node.tensor(1)
    if not table.elements or not index.elements:
        return None
    return Pick(table.name, index.name, int(node.attribute("axis", 0)) % len(table.shape))


def gather_by_comparison(node: Node) -> tuple[Nest, ...]:
    """Nests that compare each index with all positions of a short axis. Empty: another operator,
    constant indices, or too many of them."""
    pick = pick_of(node)
    if pick is None or node.numbers(1) is not None:
        return ()
    table, index, axis = node.tensor(0), node.tensor(1), pick.axis
    extent, made = table.shape[axis], node.shape()
    if extent > LONGEST or prod(made) * extent > node.limits.compared * (
        table.elements + prod(made)
    ):
        return ()
    own = _aside(node)
    behind, places = (1,) * (len(table.shape) - axis - 1), (1,) * len(index.shape)
    numbers = own.build.view(f"{node.out}.places", index, reshaped(*index.shape, 1, *behind))
    here = _places(own, "", numbers, extent, len(behind))
    shape = (*table.shape[:axis], *places, *table.shape[axis:])
    source = own.build.view(f"{node.out}.table", table, reshaped(*shape))
    kind = "int32" if table.dtype == "bool" else table.dtype  # booleans as integers, which add up
    nothing = own.number("nothing", np.zeros((), np.int32), kind)
    chosen = own.step("chosen", "select", here, source, nothing, dtype=kind)
    inner = axis + len(places)  # of what is chosen, the axis that is picked from
    rank = len(made)
    dims = (*(Dim(f"d{n}", size) for n, size in enumerate(made)), Dim("r", extent))
    order = (*(at(n) for n in range(inner)), at(rank), *(at(n) for n in range(inner, rank)))
    truth = chosen.dtype != node.dtype()
    total = own.build.create(f"{node.out}.sum" if truth else node.out, made, chosen.dtype)
    own.build.add(Nest(total.name, dims, rank, "move", (Access(chosen.name, order),), "sum"))
    if truth:
        own.step("", "move", total)
    return _nests(own)


def _aside(node: Node) -> Node:
    """`node` with the tensors and buffers of the network and steps of its own, one composite."""
    own = replace(node, build=replace(node.build, steps=[]))
    own.compose()
    return own


def _places(own: Node, part: str, index: Tensor, extent: int, behind: int) -> Tensor:
    """Whether `index` stands for each of `extent` positions in front of `behind` axes."""
    met = []
    for name, first in (("front", 0), ("back", -extent)):  # negative ones count from the end
        ramp = np.arange(first, first + extent, dtype=np.int32).reshape(extent, *(1,) * behind)
        positions = own.number(name, ramp, index.dtype)
        met.append(own.step(f"{part}at_{name}", "equal", index, positions, dtype="bool"))
    return own.step(f"{part}here", "or", *met, dtype="bool")


def _nests(node: Node) -> tuple[Nest, ...]:
    return tuple(step for step in node.build.steps if isinstance(step, Nest))


def put_of(node: Node) -> Put | None:
    """The scatter of a node into rows of its first input; None: another operator, or not whole
    rows."""
    if node.op not in ("TensorScatter", "ScatterND") or not node.has(2):
        return None
    given, second = node.tensor(0), node.tensor(1)
    update = second if node.op == "TensorScatter" else node.tensor(2)
    if (
        not second.elements
        or not update.elements
        or not node.dtype() == given.dtype == update.dtype
    ):
        return None
    if node.op == "TensorScatter":
        axis = _axis_attribute(node)
        wraps = node.attribute("mode", "linear") == "circular" and update.shape[axis] > 1
        if wraps or not axis:
            return None
        return Put(node.out, node.tensor(2).name, axis, given.name, update.name, block=True)
    if node.attribute("reduction", "none") != "none" or second.shape[-1] != 1:
        return None
    places = node.build.view(f"{node.out}.places", second, itemgetter((..., 0)))
    return Put(node.out, places.name, 0, given.name, update.name)


def _axis_attribute(node: Node) -> int:
    return int(node.attribute("axis", -2)) % len(node.shape())


def scatter_by_comparison(node: Node, put: Put | None) -> tuple[Nest, ...]:
    """Nests of a scatter of few rows: each is compared with every place. Empty: another operator,
    or too many rows."""
    if node.op == "ScatterND" and put is not None:
        return _few_places(node, put)
    if node.op != "TensorScatter" or node.tensor(1).shape[_axis_attribute(node)] > COMPARED:
        return ()
    own = _aside(node)
    made, update, shape, axis = own.tensor(0), own.tensor(1), own.shape(), _axis_attribute(own)
    extent, count, circular = shape[axis], update.shape[axis], node.attribute("mode") == "circular"
    column, samples = [1] * len(shape), (shape[0], *[1] * (len(shape) - 1))
    column[axis] = extent
    places = own.number("ramp", np.arange(extent, dtype=np.int32).reshape(column))
    if own.has(2):
        rows = own.build.view(f"{own.out}.at", own.tensor(2), reshaped(*samples))
        first = own.step("first", "move", rows, dtype="int32")
    else:
        first = own.number("first", np.zeros(samples, np.int32))
    for number in range(count):
        part, here = f"row{number}", first
        if number:
            step = own.number(f"{part}.step", np.int32(number))
            here = own.step(f"{part}.at", "add", first, step, dtype="int32")
        if circular:
            end = own.number(f"{part}.extent", np.int32(extent))
            here = own.step(f"{part}.turned", "mod", here, end, dtype="int32")
        mask = own.step(f"{part}.here", "equal", places, here, dtype="bool")
        row = own.build.view(f"{own.out}.{part}.new", update, along(axis, number, 1))
        made = own.step("" if number == count - 1 else f"{part}.made", "select", mask, row, made)
    return _nests(own)


def _few_places(node: Node, put: Put) -> tuple[Nest, ...]:
    index, shape = node.build.tensors[put.index], node.shape()
    if index.elements > COMPARED:
        return ()
    own = _aside(node)
    made, update = own.tensor(0), own.tensor(2)
    for number, place in enumerate(np.ndindex(index.shape)):
        part, cut = f"row{number}.", itemgetter((*place, ...))
        at = own.build.view(f"{own.out}.{part}place", index, cut)
        here = _places(own, part, at, shape[0], len(shape) - 1)
        row = own.build.view(f"{own.out}.{part}new", update, cut)
        last = number == index.elements - 1
        made = own.step("" if last else f"{part}made", "select", here, row, made)
    return _nests(own)
