"""Which values operators that index or divide whole numbers take, followed back to the inputs.

The one idea: a limit on what an operator reads is a limit on what that was computed from. It goes
backward through what keeps values (Cast, Reshape, Concat and the like) and through arithmetic with
constants (an offset is taken off, a Mod or Clip inside the limit lifts it). What cannot be told is
taken to be 0, which is an index of everything that has elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import onnx

from archgen.models.roles.net import Net, attribute, is_standard, node_label

INFINITE = math.inf

_MOST = 64
"""Limits of one value: more come from long chains of arithmetic, not from more operators."""


@dataclass(frozen=True)
class IndexLimits:
    """Values from `low` to `high` for each position of the last axis, or one pair for all."""

    pairs: tuple[tuple[float, float], ...]
    evidence: str
    divides: bool = False
    """Whether the values are no indices, but what whole numbers are divided by."""

    @property
    def all(self) -> tuple[float, float]:
        """What suits every position."""
        return max(low for low, _ in self.pairs), min(high for _, high in self.pairs)

    def mapped(self, change: Callable[[float, float], tuple[float, float]]) -> IndexLimits:
        """Each pair changed."""
        return replace(self, pairs=tuple(change(low, high) for low, high in self.pairs))

    def merged(self) -> IndexLimits:
        """One pair for all positions."""
        return replace(self, pairs=(self.all,))


def limits_of(net: Net) -> dict[str, list[IndexLimits]]:
    """For each value that ends up as an index: what each of its uses can take."""
    wanted: dict[str, dict[IndexLimits, None]] = {}
    for node in reversed(net.nodes):
        for slot, name in enumerate(node.input):
            if name and (found := _site(node, slot, net)) is not None:
                wanted.setdefault(name, {})[found] = None
        for result in dict.fromkeys(node.output):
            for limits in tuple(wanted.get(result, ())):
                for slot, passed in _back(node, limits, net):
                    if slot >= len(node.input):
                        continue
                    if len(kept := wanted.setdefault(node.input[slot], {})) < _MOST:
                        kept[passed] = None
    return {name: list(found) for name, found in wanted.items()}


def range_of(found: list[IndexLimits]) -> tuple[int, int]:
    """Least and largest value that suits all uses; not negative where that is possible."""
    low = max(limits.all[0] for limits in found)
    high = min(limits.all[1] for limits in found)
    if high >= 0:
        low = max(low, 0)
    if high < low or high == INFINITE:
        high = low
    return (0, 0) if low == -INFINITE else (math.ceil(low), math.floor(high))


# Where values are indices.


def _site(node: onnx.NodeProto, slot: int, net: Net) -> IndexLimits | None:
    find = _SITES.get((node.op_type, slot))
    if find is None or (node.op_type == "RotaryEmbedding" and is_standard(node) != (slot == 3)):
        return None
    return find(node, net)


def _index(node: onnx.NodeProto, net: Net, table: int, axis: int) -> IndexLimits:
    """Positions of an axis of an operand; counted from the end when negative."""
    extent = net.extent(node.input[table], axis) if table < len(node.input) else None
    evidence = f"indices of {node_label(node)}, {extent or '?'} positions"
    return IndexLimits((_positions(extent),), evidence)


def _positions(extent: object) -> tuple[float, float]:
    return (-extent, extent - 1) if isinstance(extent, int) and extent > 0 else (0, 0)


def _along(node: onnx.NodeProto, net: Net) -> IndexLimits:
    return _index(node, net, 0, attribute(node, "axis", 0))


def _tuples(node: onnx.NodeProto, net: Net) -> IndexLimits:
    """The last axis of the indices has a position of each of the first axes."""
    first = attribute(node, "batch_dims", 0)
    depth = net.extent(node.input[1], -1)
    count = depth if isinstance(depth, int) else 1
    extents = [net.extent(node.input[0], first + k) for k in range(count)]
    shown = " x ".join(str(extent or "?") for extent in extents)
    evidence = f"indices of {node_label(node)}, {shown} positions"
    return IndexLimits(tuple(map(_positions, extents)), evidence)


def _row_index_limits(table: int) -> Callable[[onnx.NodeProto, Net], IndexLimits]:
    def found(node: onnx.NodeProto, net: Net) -> IndexLimits:
        return _index(node, net, table, 0)

    return found


def _classes(node: onnx.NodeProto, net: Net) -> IndexLimits:
    low, high = _index(node, net, 0, 1).all
    extent = net.extent(node.input[0], 1)
    return IndexLimits(
        ((max(low, 0), high),), f"labels of {node_label(node)}, {extent or '?'} classes"
    )


def _one_hot(node: onnx.NodeProto, net: Net) -> IndexLimits:
    depth = net.constants.get(node.input[1]) if len(node.input) > 1 else None
    high = int(depth[0]) - 1 if depth is not None and len(depth) else 0
    return IndexLimits(((0, high),), f"indices of {node_label(node)}, {high + 1} positions")


def _lengths(axis: int) -> Callable[[onnx.NodeProto, Net], IndexLimits]:
    def found(node: onnx.NodeProto, net: Net) -> IndexLimits:
        where = attribute(node, "time_axis", axis) if node.op_type == "ReverseSequence" else axis
        extent = net.extent(node.input[0], where)
        high = extent if isinstance(extent, int) else 1
        return IndexLimits(((1, high),), f"lengths for {node_label(node)}, at most {extent or '?'}")

    return found


def _divisor(node: onnx.NodeProto, net: Net) -> IndexLimits | None:
    """Whole numbers have no quotient by 0."""
    kind = next((net.types[name] for name in (*node.input, *node.output) if name in net.types), 0)
    if kind not in _WHOLE:
        return None
    return IndexLimits(((1, _MOST_DIVISOR),), f"{node_label(node)} divides by it", divides=True)


_MOST_DIVISOR = 7
_WHOLE = frozenset(
    getattr(onnx.TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)
)


def _scatter_start_limits(node: onnx.NodeProto, net: Net) -> IndexLimits:
    """TensorScatter: where an update begins so that it ends inside the cache."""
    axis = attribute(node, "axis", -2)
    room, new = net.extent(node.input[0], axis), net.extent(node.input[1], axis)
    high = room - new if isinstance(room, int) and isinstance(new, int) else 0
    return IndexLimits(
        ((0, max(high, 0)),), f"positions of {node_label(node)}, {room or '?'} of them"
    )


def _filled(less: int) -> Callable[[onnx.NodeProto, Net], IndexLimits]:
    """GroupQueryAttention: its cache is full, counted up to the last row or to its end."""

    def found(node: onnx.NodeProto, net: Net) -> IndexLimits:
        extents = [net.extent(name, 2) for name in (*node.output[1:2], *node.input[3:4])]
        room = next((extent for extent in extents if isinstance(extent, int)), 1)
        return IndexLimits(
            ((room - less, room - less),), f"length of the cache of {node_label(node)}"
        )

    return found


_SITES: dict[tuple[str, int], Callable[[onnx.NodeProto, Net], IndexLimits | None]] = {
    ("Div", 1): _divisor,
    ("Mod", 1): _divisor,
    ("Gather", 1): _along,
    ("GatherElements", 1): _along,
    ("ScatterElements", 1): _along,
    ("Scatter", 1): _along,
    ("GatherBlockQuantized", 1): _row_index_limits(0),
    ("GatherND", 1): _tuples,
    ("ScatterND", 1): _tuples,
    ("OneHot", 0): _one_hot,
    ("NegativeLogLikelihoodLoss", 1): _classes,
    ("SoftmaxCrossEntropyLoss", 1): _classes,
    ("EmbedLayerNormalization", 0): _row_index_limits(2),
    ("EmbedLayerNormalization", 1): _row_index_limits(4),
    ("RoiAlign", 2): _row_index_limits(0),
    ("ReverseSequence", 1): _lengths(0),
    ("LSTM", 4): _lengths(0),
    ("GRU", 4): _lengths(0),
    ("RNN", 4): _lengths(0),
    ("TensorScatter", 2): _scatter_start_limits,
    ("GroupQueryAttention", 5): _filled(1),
    ("GroupQueryAttention", 6): _filled(0),
    ("RotaryEmbedding", 3): _row_index_limits(1),  # of ONNX: data, cosines, sines, positions
    ("RotaryEmbedding", 1): _row_index_limits(
        2
    ),  # of com.microsoft: data, positions, cosines, sines
}


# How limits go backward.

_SAME = {
    *("Cast", "CastLike", "Identity", "Dropout", "Expand", "Each", "Stack"),
    *("QuantizeLinear", "DequantizeLinear"),
}
_MOVED = {
    *("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Slice", "Split", "Tile"),
    *("Pad", "ReduceMax", "ReduceMin", "Floor", "Ceil", "Round", "Gather", "GatherElements"),
    *("GatherND", "Compress", "TopK", "Trilu"),
}
"""Their first operand's values, in other places."""

Passed = list[tuple[int, IndexLimits]]


def _back(node: onnx.NodeProto, limits: IndexLimits, net: Net) -> Passed:
    """Limits of the operands of `node` that keep its result inside of `limits`."""
    kind, given = node.op_type, node.input
    if kind in _SAME:
        return [(0, limits)]
    if kind in _MOVED:
        return [(0, limits.merged())] if given and given[0] else []
    if kind == "Concat":
        return _concat_limits(node, limits, net)
    if kind in ("Max", "Min", "Clip"):
        return _clipped(node, limits, net)
    if kind == "Where":
        return [(slot, limits.merged()) for slot in _selected_operands(node, net)]
    if kind in ("ScatterND", "ScatterElements"):
        return [(slot, limits.merged()) for slot in (0, 2)]
    if kind == "Neg":
        return [(0, limits.mapped(lambda low, high: (-high, -low)))]
    if kind in ("Add", "Sub", "Mul", "Div", "Mod") and len(given) == 2:
        return _arithmetic(node, limits, net)
    return []


def _concat_limits(node: onnx.NodeProto, limits: IndexLimits, net: Net) -> Passed:
    """A Concat along the last axis hands each operand the limits of its positions."""
    rank = net.rank(node.output[0])
    extents = [net.extent(name, -1) for name in node.input]
    axis = attribute(node, "axis", 0)
    last = rank is not None and axis % rank == rank - 1
    whole = [extent for extent in extents if isinstance(extent, int)]
    if not last or len(whole) < len(extents) or sum(whole) != len(limits.pairs):
        return [(slot, limits.merged()) for slot in range(len(node.input))]
    passed, start = [], 0
    for slot, extent in enumerate(whole):
        pairs = limits.pairs[start : start + extent]
        passed += [(slot, replace(limits, pairs=pairs))] if pairs else []
        start += extent
    return passed


def _selected_operands(node: onnx.NodeProto, net: Net) -> tuple[int, ...]:
    """Operands of a Where that are used for values that are not negative: `x < 0 ? x + n : x` is
    how exporters count from the end."""
    asked = net.makers.get(node.input[0])
    if asked is None or asked.op_type not in ("Less", "GreaterOrEqual"):
        return (1, 2)
    bounds = _bounds(asked, net, 1)
    if bounds != (0.0, 0.0):
        return (1, 2)
    return (2,) if asked.op_type == "Less" else (1,)


def _bounds(node: onnx.NodeProto, net: Net, slot: int) -> tuple[float, float] | None:
    """Least and largest value of a constant operand."""
    value = net.constants.get(node.input[slot]) if slot < len(node.input) else None
    return None if value is None or not len(value) else (float(value.min()), float(value.max()))


def _clipped(node: onnx.NodeProto, limits: IndexLimits, net: Net) -> Passed:
    """What a constant bound takes care of is no limit on the operand."""
    low, high = limits.all
    floor, ceiling = -INFINITE, INFINITE
    if node.op_type == "Clip":
        bounds = _bounds(node, net, 1), _bounds(node, net, 2)
        floor = bounds[0][0] if bounds[0] else attribute(node, "min", floor)
        ceiling = bounds[1][1] if bounds[1] else attribute(node, "max", ceiling)
        free = [0]
    else:
        known = {slot: _bounds(node, net, slot) for slot in range(len(node.input))}
        free = [slot for slot, pair in known.items() if pair is None]
        for pair in filter(None, known.values()):
            if node.op_type == "Max":
                floor = max(floor, pair[0])
            else:
                ceiling = min(ceiling, pair[1])
    # Where both bounds are inside, all values do; those between the bounds try all positions.
    low = floor if low <= floor <= high else low
    high = ceiling if low <= ceiling <= high else high
    return [(slot, replace(limits, pairs=((low, high),))) for slot in free]


def _arithmetic(node: onnx.NodeProto, limits: IndexLimits, net: Net) -> Passed:
    constant = {slot: _bounds(node, net, slot) for slot in (0, 1)}
    free = [slot for slot in (0, 1) if constant[slot] is None]
    if len(free) == 2:
        if limits.all[0] > 0:
            return _both_positive(node, limits)
        # Only 0 is sure to leave the other operand where it is, or to be inside by itself.
        zero = replace(limits, pairs=((0, 0),))
        both = node.op_type in ("Add", "Sub", "Mul")
        return [(slot, zero) for slot in ((0, 1) if both else (0,))]
    if not free:
        return []
    slot = free[0]
    least, most = constant[1 - slot] or (0.0, 0.0)
    if node.op_type == "Mul" and least == most == 0:
        return []  # 0 whatever the operand is
    change = _CHANGES.get((node.op_type, slot))
    if change is None or (node.op_type in ("Mul", "Div", "Mod") and least <= 0):
        return [(slot, replace(limits, pairs=((0, 0),)))]
    return [(slot, limits.merged().mapped(lambda low, high: change(low, high, least, most)))]


def _both_positive(node: onnx.NodeProto, limits: IndexLimits) -> Passed:
    """Two operands whose sum or product is inside of limits above 0."""
    low, high = limits.all
    ends = {"Add": (low / 2, high / 2), "Mul": (1.0, math.sqrt(high)) if low <= 1 else (low, low)}
    if node.op_type not in ends:
        return []
    least, most = ends[node.op_type]
    pair = (math.ceil(least), max(math.ceil(least), math.floor(most)))
    return [(slot, replace(limits, pairs=(pair,))) for slot in (0, 1)]


Change = Callable[[float, float, float, float], tuple[float, float]]


def _wrapped(low: float, high: float, least: float, most: float) -> tuple[float, float]:
    """A Mod inside the limits takes everything; twice round, so that it does something."""
    if low > 0:
        return low, min(high, least - 1)  # what is smaller stays as it is
    return (0, 2 * least - 1) if most - 1 <= high else (max(low, 0), high)


_CHANGES: dict[tuple[str, int], Change] = {
    ("Add", 0): lambda low, high, least, most: (low - least, high - most),
    ("Add", 1): lambda low, high, least, most: (low - least, high - most),
    ("Sub", 0): lambda low, high, least, most: (low + most, high + least),
    ("Sub", 1): lambda low, high, least, most: (most - high, least - low),
    ("Mul", 0): lambda low, high, least, most: (math.ceil(low / most), math.floor(high / most)),
    ("Mul", 1): lambda low, high, least, most: (math.ceil(low / most), math.floor(high / most)),
    ("Div", 0): lambda low, high, least, most: (low * least, high * least + least - 1),
    ("Mod", 0): _wrapped,
}
