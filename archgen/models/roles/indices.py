"""Which values operators that index or divide whole numbers take, followed back to the inputs.

The one idea: a limit on what an operator reads is a limit on what that was computed from. It goes
backward through what keeps values (Cast, Reshape, Concat and the like) and through an offset or a
Mod by a constant. Behind other arithmetic only one value is sure: 0, which is an index of
everything that has elements, or the least one allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import onnx

from archgen.models.roles.net import CARRIERS, Net, node_label, op_types
from archgen.zoo.shapes import attribute
from simmodel.arch.dtype import Array

_MOST = 64
"""Limits of one value: more come from long chains of arithmetic, not from more operators."""


@dataclass(frozen=True)
class IndexLimits:
    """Whole numbers from `low` to `high`."""

    low: float
    high: float
    evidence: str
    divides: bool = False
    """Whether the values are no indices, but what whole numbers are divided by."""


def limits_of(net: Net) -> dict[str, list[IndexLimits]]:
    """For each value that ends up as an index: what each of its uses can take."""
    wanted: dict[str, dict[IndexLimits, None]] = {}
    for node in reversed(net.nodes):
        for slot in range(len(node.input)):
            for name, limits in _limits_at(node, slot, net):
                wanted.setdefault(name, {})[limits] = None
        for result in dict.fromkeys(node.output):
            for limits in tuple(wanted.get(result, ())):
                for name, passed in _limits_behind(node, limits, net):
                    if name and len(kept := wanted.setdefault(name, {})) < _MOST:
                        kept[passed] = None
    return {name: list(found) for name, found in wanted.items()}


def range_of(found: list[IndexLimits]) -> tuple[int, int]:
    """Least and largest value that suits all uses; not negative where that is possible."""
    low = max(limits.low for limits in found)
    high = min(limits.high for limits in found)
    low = max(low, 0) if high >= 0 else low
    high = low if high == math.inf else max(low, high)
    return (0, 0) if low == -math.inf else (math.ceil(low), math.floor(high))


# Where values are indices.


def _limits_at(node: onnx.NodeProto, slot: int, net: Net) -> Iterator[tuple[str, IndexLimits]]:
    name, kind = node.input[slot], node.op_type
    label = node_label(node)
    if kind in ("GatherND", "ScatterND") and slot == 1:
        yield from _tuple_limits(node, net)
    elif (kind, slot) in _TABLES and (
        kind != "RotaryEmbedding" or (node.domain == "com.microsoft") == (slot == 1)
    ):
        table, default = _TABLES[kind, slot]
        axis = attribute(node, "axis", 0) if default is None else default
        yield name, _positions(label, [net.extent(node.input[table], axis)])
    elif kind == "OneHot" and slot == 0:
        depth = net.constants.get(node.input[1])
        yield name, _positions(label, [int(depth[0]) if depth is not None else None], least=0)
    elif (kind, slot) in _COUNTS:
        low, high = _COUNTS[kind, slot](node, net)
        yield name, IndexLimits(low, high, f"counts positions for {label}, at most {high}")
    elif kind in ("Div", "Mod") and slot == 1 and _is_whole(node, net):
        yield name, IndexLimits(1, _MOST_DIVISOR, f"{label} divides by it", divides=True)


_MOST_DIVISOR = 7
_WHOLE = frozenset(
    getattr(onnx.TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)
)
_TABLES: dict[tuple[str, int], tuple[int, int | None]] = {
    **dict.fromkeys((("Gather", 1), ("GatherElements", 1), ("ScatterElements", 1)), (0, None)),
    ("GatherBlockQuantized", 1): (0, 0),
    ("RoiAlign", 2): (0, 0),
    ("RotaryEmbedding", 3): (1, 0),  # of ONNX: data, cosines, sines, positions
    ("RotaryEmbedding", 1): (2, 0),  # of com.microsoft: data, positions, cosines, sines
}
"""For slots of indices: the slot of what they are indices of, and its axis; None: by attribute."""


def _is_whole(node: onnx.NodeProto, net: Net) -> bool:
    kinds = (net.types[name] for name in (*node.input, *node.output) if name in net.types)
    return next(kinds, 0) in _WHOLE


def _positions(label: str, extents: list[object], least: int | None = None) -> IndexLimits:
    """Positions that all `extents` have; counted from the end when negative."""
    sizes = [extent if isinstance(extent, int) and extent > 0 else 1 for extent in extents]
    size = min(sizes, default=1)
    shown = " x ".join(str(extent or "?") for extent in extents)
    low = -size if least is None and size > 1 else 0
    return IndexLimits(low, size - 1, f"indices of {label}, {shown} positions")


def _tuple_limits(node: onnx.NodeProto, net: Net) -> Iterator[tuple[str, IndexLimits]]:
    """The last axis of the indices has a position of each of the first axes; where a Concat joins
    them, each of its operands has limits of its own."""
    first, depth = attribute(node, "batch_dims", 0), net.extent(node.input[1], -1)
    count = depth if isinstance(depth, int) else 1
    extents: list[object] = [net.extent(node.input[0], first + k) for k in range(count)]
    joined = net.makers.get(node.input[1])
    parts = [node.input[1]] if joined is None or joined.op_type != "Concat" else joined.input
    if len(parts) == count and all(net.extent(part, -1) == 1 for part in parts):
        for part, extent in zip(parts, extents, strict=True):
            yield part, _positions(node_label(node), [extent])
    else:
        yield node.input[1], _positions(node_label(node), extents)


def _length(node: onnx.NodeProto, net: Net) -> tuple[int, int]:
    """Steps of a recurrent layer, along the first axis of its data."""
    extent = net.extent(node.input[0], 0)
    return 1, extent if isinstance(extent, int) else 1


def _update_start(node: onnx.NodeProto, net: Net) -> tuple[int, int]:
    """TensorScatter: where an update begins so that it ends inside the cache."""
    axis = attribute(node, "axis", -2)
    room, new = net.extent(node.input[0], axis), net.extent(node.input[1], axis)
    return 0, max(room - new, 0) if isinstance(room, int) and isinstance(new, int) else 0


_COUNTS: dict[tuple[str, int], Callable[[onnx.NodeProto, Net], tuple[int, int]]] = {
    **dict.fromkeys((("LSTM", 4), ("GRU", 4), ("RNN", 4)), _length),
    ("TensorScatter", 2): _update_start,
}


# How limits go backward.

_CARRIERS = CARRIERS | op_types(
    "CastLike Pad ReduceMax ReduceMin GatherElements GatherND TopK Trilu ScatterND ScatterElements"
)
"""Their first operand's values, perhaps in other places; a Scatter has updates as well."""
_ARITHMETIC = op_types("Add Sub Mul Div Mod Neg Abs Clip Max Min")


def _limits_behind(
    node: onnx.NodeProto, limits: IndexLimits, net: Net
) -> list[tuple[str, IndexLimits]]:
    """Limits of the operands of `node` that keep its result inside of `limits`."""
    kind, given = node.op_type, node.input
    if kind in _CARRIERS:
        return [(name, limits) for name in given[0 : 3 if "Scatter" in kind else 1 : 2]]
    if kind in ("Concat", "Where"):
        return [(name, limits) for name in (given if kind == "Concat" else given[1:])]
    if kind not in _ARITHMETIC:
        return []
    free = [name for name in given if name and name not in net.constants]
    if len(given) == 2 and len(free) == 1:
        slot = list(given).index(free[0])
        constant = net.constants[given[1 - slot]]
        if len(constant) and (passed := _changed(kind, slot, limits, constant)) is not None:
            return [(free[0], passed)]
    value = max(limits.low, 0)
    sure = replace(limits, low=value, high=value)
    return [(name, sure) for name in (free[:1] if kind in ("Div", "Mod") else free)]


def _changed(kind: str, slot: int, limits: IndexLimits, constant: Array) -> IndexLimits | None:
    """Limits of the operand in `slot` beside a constant; None where only one value is sure."""
    least, most = float(constant.min()), float(constant.max())
    low, high = limits.low, limits.high
    if kind == "Mul" and least == most == 0:
        return replace(limits, low=-math.inf, high=math.inf)  # 0 whatever the operand is
    if kind == "Add":
        return replace(limits, low=low - least, high=high - most)
    if kind == "Sub" and slot == 0:
        return replace(limits, low=low + most, high=high + least)
    if kind == "Mod" and slot == 0 and least > 0 >= low and most - 1 <= high:
        return replace(limits, low=0, high=2 * least - 1)  # twice round, so that it does something
    return None
