"""Where an operator puts the axes of its operands, and which of them it mixes.

The one idea: an axis is *kept* where every position of the result along it needs that position of
the operand alone; it is *mixed* where positions meet: in a sum, a window, a norm, or because one
of them is taken. What is neither is not known. An operator that names one of its axes the batch
says so. Operators fall into a few families, one function each; `FAMILIES` says which is whose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import onnx

from archgen.models.roles.net import LINK, Dims, Net, attribute

Place = tuple[int, int]
"""Slot of an operand, and its axis."""


@dataclass
class Moves:
    """What one node does with the axes of its operands."""

    node: onnx.NodeProto
    net: Net
    kept: list[tuple[Place, Place]] = field(default_factory=list)
    """From (slot, axis) of an operand to (index, axis) of a result."""
    mixed: dict[Place, str] = field(default_factory=dict)
    """How positions along an axis meet, as a verb that the node is the subject of."""
    batch: list[Place] = field(default_factory=list)
    """Axes that the operator's definition names the batch."""

    def slots(self) -> list[int]:
        """Slots that have an operand of known rank."""
        return [s for s, name in enumerate(self.node.input) if self.net.rank(name) is not None]

    def rank(self, slot: int) -> int:
        """Rank of an operand; 0 where there is none or it is not known."""
        given = self.node.input
        return (self.net.rank(given[slot]) or 0) if slot < len(given) and given[slot] else 0

    def dims(self, slot: int) -> Dims:
        """Extents of an operand; none where they are not known."""
        given = self.node.input
        return self.net.shapes.get(given[slot], ()) if slot < len(given) else ()

    def numbers(self, slot: int, name: str) -> list[int] | None:
        """Whole numbers that an operand or, in older operator sets, an attribute has."""
        given = self.node.input
        if slot < len(given) and given[slot]:
            value = self.net.constants.get(given[slot])
            return None if value is None else [int(number) for number in value]
        stated = attribute(self.node, name, None)
        return [stated] if isinstance(stated, int) else None if stated is None else list(stated)

    def axis(self, slot: int, default: int, name: str = "axis") -> int:
        """An attribute that names an axis of an operand, counted from the front."""
        stated = int(attribute(self.node, name, default))
        return stated % self.rank(slot) if self.rank(slot) else stated

    def map_axis(self, slot: int, axis: int, to: int, results: Iterable[int] = (0,)) -> None:
        """`axis` of an operand becomes axis `to` of the results."""
        if 0 <= axis < self.rank(slot):
            self.kept += [((slot, axis), (result, to)) for result in results]

    def mix(self, slot: int, axis: int, how: str) -> None:
        """Positions along `axis` of an operand meet."""
        if 0 <= axis < self.rank(slot):
            self.mixed[slot, axis] = how

    def all_results(self) -> range:
        """Indices of all results."""
        return range(len(self.node.output))


def _elementwise(moves: Moves) -> None:
    slots = moves.slots()
    rank = max((moves.rank(slot) for slot in slots), default=0)
    for slot in slots:
        for axis in range(moves.rank(slot)):
            moves.map_axis(slot, axis, axis + rank - moves.rank(slot), moves.all_results())


def _first_only(moves: Moves) -> None:
    """Like the first operand; the others are scales, limits and the like."""
    for axis in range(moves.rank(0)):
        moves.map_axis(0, axis, axis, moves.all_results())


def _image(moves: Moves, channels: str = "sums over it") -> None:
    """Batch, channels, and windows over the rest."""
    moves.batch.append((0, 0))
    moves.map_axis(0, 0, 0, moves.all_results())
    if channels:
        moves.mix(0, 1, channels)
    else:
        moves.map_axis(0, 1, 1, moves.all_results())
    for axis in range(2, moves.rank(0)):
        moves.mix(0, axis, "works over a neighbourhood along it")


def _pool(moves: Moves) -> None:
    _image(moves, channels="")


def _resize(moves: Moves) -> None:
    """Axes of scale 1 are kept; where scales are not known, the first two."""
    scales = moves.net.constants.get(moves.node.input[2]) if len(moves.node.input) > 2 else None
    for axis in range(moves.rank(0)):
        whole = axis < 2 if scales is None or len(scales) != moves.rank(0) else scales[axis] == 1
        if whole:
            moves.map_axis(0, axis, axis)
        else:
            moves.mix(0, axis, "interpolates along it")


def _batch_norm(moves: Moves) -> None:
    moves.batch.append((0, 0))
    _first_only(moves)


def _matmul_axes(moves: Moves) -> None:
    """MatMul: the last axis of the left meets the last but one of the right."""
    left, right = moves.rank(0), moves.rank(1)
    rank = max(left, right)
    for slot, own in ((0, left), (1, right)):
        for axis in range(own - 2):
            moves.map_axis(slot, axis, axis + rank - own)
    rows, cols = min(1, left - 1), min(1, right - 1)
    turned = [attribute(moves.node, name, 0) for name in ("transA", "transB")]
    moves.mix(0, left - 1 - (rows if turned[0] else 0), "sums over it")
    moves.mix(1, right - 1 - (0 if turned[1] else cols), "sums over it")
    if rows:
        moves.map_axis(0, left - 1 if turned[0] else left - 2, max(rank, 2) - 2)
    if cols:
        moves.map_axis(1, right - 2 if turned[1] else right - 1, max(rank, 2) - (2 - rows))


def _gemm(moves: Moves) -> None:
    _matmul_axes(moves)
    for axis in range(moves.rank(2)):
        moves.map_axis(2, axis, axis + 2 - moves.rank(2))


def _norm_from(moves: Moves) -> None:
    """Statistics over all axes from one on."""
    first = moves.axis(0, -1)
    for axis in range(moves.rank(0)):
        if axis < first:
            moves.map_axis(0, axis, axis, moves.all_results())
        else:
            moves.mix(0, axis, "normalizes over it")


def _softmax(moves: Moves) -> None:
    """Over one axis; over all from one on in older operator sets."""
    old = moves.net.opset < 13
    first = moves.axis(0, 1 if old else -1)
    for axis in range(moves.rank(0)):
        if axis == first or (old and axis > first):
            moves.mix(0, axis, "normalizes over it")
        else:
            moves.map_axis(0, axis, axis)


def _along(moves: Moves) -> None:
    """One axis of the first operand is worked along; the result has all of them."""
    axes = moves.numbers(1, "axis") if moves.node.op_type == "CumSum" else None
    which = axes[0] % moves.rank(0) if axes and moves.rank(0) else moves.axis(0, -1)
    for axis in range(moves.rank(0)):
        if axis == which:
            moves.mix(0, axis, "works along it")
        else:
            moves.map_axis(0, axis, axis, moves.all_results())


def _reduce(moves: Moves) -> None:
    name = "axis" if moves.node.op_type in ("ArgMax", "ArgMin") else "axes"
    rank = moves.rank(0)
    axes = [0] if name == "axis" else None
    axes = moves.numbers(1, name) or axes
    if axes is None and len(moves.node.input) > 1 and moves.node.input[1]:
        return  # axes that are computed
    if axes is None and attribute(moves.node, "noop_with_empty_axes", 0):
        _first_only(moves)
        return
    over = {axis % rank for axis in axes} if axes and rank else set(range(rank))
    stays = attribute(moves.node, "keepdims", 1)
    for axis in range(rank):
        if axis in over:
            moves.mix(0, axis, "reduces it")
        else:
            moves.map_axis(0, axis, axis if stays else axis - sum(each < axis for each in over))


def _indexed(moves: Moves, axis: int, slot: int) -> None:
    """Positions of `axis` are taken by an operand; who takes the only one, or counts all of them
    by the shape alone, may as well mean the batch."""
    index = moves.node.input[slot] if slot < len(moves.node.input) else ""
    if index in moves.net.valued:
        moves.mix(0, axis, "is indexed along it")
    elif index in moves.net.weights and moves.dims(0)[axis : axis + 1] != (1,):
        moves.mix(0, axis, "takes single positions of it")


def _gather(moves: Moves) -> None:
    axis, rank = moves.axis(0, 0), moves.rank(1)
    _indexed(moves, axis, 1)
    for place in range(moves.rank(0)):
        if place != axis:
            moves.map_axis(0, place, place if place < axis else place + rank - 1)
    for place in range(rank):
        moves.map_axis(1, place, axis + place)


def _pick(moves: Moves) -> None:
    """GatherElements, ScatterElements: element by element but for one axis."""
    axis = moves.axis(0, 0)
    for slot in moves.slots():
        for place in range(moves.rank(slot)):
            if place != axis:
                moves.map_axis(slot, place, place)
    _indexed(moves, axis, 1)


def _gather_nd(moves: Moves) -> None:
    shared = attribute(moves.node, "batch_dims", 0)
    depth = moves.dims(1)[-1] if moves.dims(1) else None
    if not isinstance(depth, int):
        return
    rank = moves.rank(1)
    for axis in range(moves.rank(0)):
        if axis < shared:
            moves.map_axis(0, axis, axis)
        elif axis < shared + depth:
            _indexed(moves, axis, 1)
        else:
            moves.map_axis(0, axis, axis - depth - shared + rank - 1)
    for axis in range(rank - 1):
        moves.map_axis(1, axis, axis)


def _scatter_nd(moves: Moves) -> None:
    depth = moves.dims(1)[-1] if moves.dims(1) else None
    for axis in range(moves.rank(0)):
        if isinstance(depth, int) and axis >= depth:
            moves.map_axis(0, axis, axis)
        elif isinstance(depth, int):
            _indexed(moves, axis, 1)


def _transpose(moves: Moves) -> None:
    order = attribute(moves.node, "perm", None) or reversed(range(moves.rank(0)))
    for to, axis in enumerate(order):
        moves.map_axis(0, axis, to)


def _reshape(moves: Moves) -> None:
    """Equal extents from the front, then from the back; of a block in between the first axis of
    either side stands for all of it: in memory it is the outermost."""
    before, after = moves.dims(0), moves.net.shapes.get(moves.node.output[0], ())
    if moves.node.output[0] not in moves.net.shapes:
        return
    target = moves.numbers(1, "shape") or []
    front = 0
    while front < min(len(before), len(after)) and _same(before, after, front, front, target):
        moves.map_axis(0, front, front)
        front += 1
    back = 1
    while back <= min(len(before), len(after)) - front and before[-back] is not None:
        if before[-back] != after[-back]:
            break
        moves.map_axis(0, len(before) - back, len(after) - back)
        back += 1
    block = before[front : len(before) - back + 1], after[front : len(after) - back + 1]
    if all(block) and before[front] != 1 and after[front] != 1:
        moves.map_axis(0, front, front)


def _same(before: Dims, after: Dims, one: int, other: int, target: list[int]) -> bool:
    copied = other < len(target) and target[other] == 0 and one == other
    return copied or (before[one] is not None and before[one] == after[other])


def _flatten(moves: Moves) -> None:
    if attribute(moves.node, "axis", 1) == 0:
        return
    moves.map_axis(0, 0, 0)


def _squeeze(moves: Moves) -> None:
    rank = moves.rank(0)
    axes = moves.numbers(1, "axes")
    if axes is None:
        axes = [axis for axis, extent in enumerate(moves.dims(0)) if extent == 1]
    gone = {axis % rank for axis in axes} if rank else set()
    for axis in range(rank):
        if axis not in gone:
            moves.map_axis(0, axis, axis - sum(each < axis for each in gone))


def _unsqueeze(moves: Moves) -> None:
    axes = moves.numbers(1, "axes")
    if axes is None:
        return
    rank = moves.rank(0) + len(axes)
    new = {axis % rank for axis in axes}
    for axis, to in enumerate(place for place in range(rank) if place not in new):
        moves.map_axis(0, axis, to)


def _concat(moves: Moves) -> None:
    for slot in moves.slots():
        where = moves.axis(slot, 1)
        for axis in range(moves.rank(slot)):
            if axis == where:
                moves.mix(slot, axis, "joins it with others")
            else:
                moves.map_axis(slot, axis, axis)


def _split_axes(moves: Moves) -> None:
    where = moves.axis(0, 0)
    for axis in range(moves.rank(0)):
        if axis != where or len(moves.node.output) == 1:
            moves.map_axis(0, axis, axis, moves.all_results())
        else:
            moves.mix(0, axis, "takes it apart")


_ALL = 10**8
"""Ends of slices from here on mean: to the end; exporters write this number and larger ones."""


def _slice(moves: Moves) -> None:
    rank = moves.rank(0)
    starts, ends = moves.numbers(1, "starts"), moves.numbers(2, "ends")
    axes = moves.numbers(3, "axes")
    if axes is None:
        if len(moves.node.input) > 3 and moves.node.input[3]:
            return
        axes = list(range(len(starts or ends or [])))
    cut = {axis % rank for axis in axes} if rank else set()
    for axis in range(rank):
        if axis not in cut or _is_whole(moves, axis, axes, starts, ends):
            moves.map_axis(0, axis, axis)
        elif starts is not None and ends is not None and moves.dims(0)[axis] != 1:
            moves.mix(0, axis, "cuts pieces out of it")


def _is_whole(
    moves: Moves, axis: int, axes: list[int], starts: list[int] | None, ends: list[int] | None
) -> bool:
    """Whether a slice along `axis` leaves all of it, by its limits or by its extent."""
    after = moves.net.shapes.get(moves.node.output[0], ())
    before = moves.dims(0)[axis]
    if before is not None and axis < len(after) and after[axis] == before:
        return True
    if starts is None or ends is None:
        return False
    rank = moves.rank(0)
    limits = zip(axes, starts, ends, strict=False)
    return any(a % rank == axis and start == 0 and end >= _ALL for a, start, end in limits)


def _pad(moves: Moves) -> None:
    pads, rank = moves.numbers(1, "pads"), moves.rank(0)
    if pads is None or len(pads) != 2 * rank:
        moves.map_axis(0, 0, 0)
        return
    for axis in range(rank):
        if pads[axis] or pads[axis + rank]:
            moves.mix(0, axis, "pads it")
        else:
            moves.map_axis(0, axis, axis)


def _expand(moves: Moves) -> None:
    after = moves.net.shapes.get(moves.node.output[0], ())
    for axis, extent in enumerate(moves.dims(0)):
        if extent != 1 or (after and after[axis + len(after) - len(moves.dims(0))] == 1):
            moves.map_axis(0, axis, axis + max(len(after) - len(moves.dims(0)), 0))


def _tile_axes(moves: Moves) -> None:
    repeats = moves.numbers(1, "repeats")
    for axis in range(moves.rank(0)):
        if repeats and axis < len(repeats) and repeats[axis] == 1:
            moves.map_axis(0, axis, axis)


def _recurrent(moves: Moves) -> None:
    """Time, batch, features in; all states of one direction and the last ones out."""
    inner = attribute(moves.node, "layout", 0)
    time, batch = (1, 0) if inner else (0, 1)
    moves.batch.append((0, batch))
    moves.mix(0, time, "walks along it")
    moves.mix(0, 2, "sums over it")
    moves.map_axis(0, batch, 0 if inner else 2, (0,))
    moves.map_axis(0, batch, batch, range(1, len(moves.node.output)))
    for slot in (5, 6):
        if moves.rank(slot):
            moves.batch.append((slot, batch))
            moves.map_axis(slot, batch, batch, range(1, len(moves.node.output)))
            moves.mix(slot, time, "takes one position for each direction")
    if moves.rank(4):
        moves.batch.append((4, 0))


def _attention(moves: Moves) -> None:
    """Operators of whole blocks: the first axis of what they read is the batch."""
    for slot in moves.slots():
        if moves.rank(slot) > 2 and moves.node.input[slot] not in moves.net.weights:
            moves.batch.append((slot, 0))
            moves.map_axis(slot, 0, 0, moves.all_results())


def _embedding(moves: Moves) -> None:
    for slot in (0, 1):
        moves.batch += [(slot, 0)] if moves.rank(slot) else []
        moves.map_axis(slot, 0, 0, moves.all_results())


def _picked(moves: Moves) -> None:
    for slot in moves.slots():
        for axis in range(moves.rank(slot)):
            moves.mix(slot, axis, "picks elements of it")


def _regions(moves: Moves) -> None:
    """RoiAlign: images by index, one result for each region."""
    moves.batch.append((0, 0))
    moves.mix(0, 0, "is indexed along it")
    for slot in (1, 2):
        moves.map_axis(slot, 0, 0)


def _each(moves: Moves) -> None:
    """One round of a Scan: a position of the first axis."""
    moves.mix(0, 0, "walks along it")
    for axis in range(1, moves.rank(0)):
        moves.map_axis(0, axis, axis - 1)


def _stack(moves: Moves) -> None:
    for axis in range(moves.rank(0)):
        moves.map_axis(0, axis, axis + 1)


def _einsum(moves: Moves) -> None:
    equation = attribute(moves.node, "equation", b"").decode().replace(" ", "")
    terms, arrow, result = equation.partition("->")
    if not arrow or "." in equation:
        return
    for slot, term in enumerate(terms.split(",")):
        for axis, letter in enumerate(term):
            if letter in result:
                moves.map_axis(slot, axis, result.index(letter))
            else:
                moves.mix(slot, axis, "sums over it")


Family = Callable[[Moves], None]
FAMILIES: dict[str, Family] = {}


def _are(family: Family, *names: str) -> None:
    FAMILIES.update(dict.fromkeys(names, family))


_are(_elementwise, "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Sum", "Mean", "Where",
     "And", "Or", "Xor", "Not", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual",
     "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Abs", "Neg", "Sign",
     "Ceil", "Floor", "Round", "Exp", "Log", "Sqrt", "Reciprocal", "Erf", "Sin", "Cos", "Tan",
     "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Sigmoid", "Relu",
     "LeakyRelu", "PRelu", "Elu", "Celu", "Selu", "Gelu", "Mish", "Swish", "HardSigmoid",
     "HardSwish", "Softplus", "Softsign", "ThresholdedRelu", "Shrink", "Identity", "Cast",
     "IsNaN", "IsInf", "FastGelu", "QuickGelu", "BiasGelu", "ConstantOfShape")  # fmt: skip
_are(_first_only, "Clip", "Dropout", "QuantizeLinear", "DequantizeLinear", "CastLike",
     "DynamicQuantizeLinear", "Trilu", "RandomNormalLike", "RandomUniformLike",
     "Bernoulli")  # fmt: skip
_are(_image, "Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv", "LRN",
     "DepthToSpace", "SpaceToDepth", "Col2Im", "GridSample", "GroupNormalization",
     "FusedConv")  # fmt: skip
_are(_pool, "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool",
     "GlobalLpPool", "MaxUnpool", "InstanceNormalization", "MaxRoiPool")  # fmt: skip
_are(_resize, "Resize", "Upsample")
_are(_batch_norm, "BatchNormalization")
_are(_matmul_axes, "MatMul", "MatMulInteger", "FusedMatMul")
_are(_gemm, "Gemm")
_are(_norm_from, "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization",
     "SkipLayerNormalization", "SkipSimplifiedLayerNormalization")  # fmt: skip
_are(_softmax, "Softmax", "LogSoftmax", "Hardmax")
_are(_along, "CumSum", "CumProd", "TopK", "LpNormalization")
_are(_reduce, "ArgMax", "ArgMin", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin",
     "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
     "ReduceSumSquare")  # fmt: skip
_are(_gather, "Gather")
_are(_pick, "GatherElements", "ScatterElements", "Scatter")
_are(_gather_nd, "GatherND")
_are(_scatter_nd, "ScatterND")
_are(_transpose, "Transpose")
_are(_reshape, "Reshape")
_are(_flatten, "Flatten")
_are(_squeeze, "Squeeze")
_are(_unsqueeze, "Unsqueeze")
_are(_concat, "Concat")
_are(_split_axes, "Split")
_are(_slice, "Slice")
_are(_pad, "Pad")
_are(_expand, "Expand")
_are(_tile_axes, "Tile")
_are(_recurrent, "LSTM", "GRU", "RNN")
_are(_attention, "Attention", "MultiHeadAttention", "GroupQueryAttention", "RotaryEmbedding",
     "TensorScatter", "PackedAttention", "SparseAttention")  # fmt: skip
_are(_embedding, "EmbedLayerNormalization")
_are(_picked, "NonMaxSuppression", "NonZero", "Unique", "Compress")
_are(_regions, "RoiAlign")
_are(_einsum, "Einsum")
_LINKS: dict[str, Family] = {"Identity": _first_only, "Each": _each, "Stack": _stack}

# Quantized operators of the standard: slots of the operands that are not scales.
_QUANTIZED_PRODUCT = (0, 3)


def moves_of(node: onnx.NodeProto, net: Net) -> Moves:
    """What `node` does with axes; nothing is known of an operator that is in no family."""
    moves = Moves(node, net)
    if node.op_type == "QLinearMatMul":
        plain = onnx.helper.make_node("MatMul", [node.input[0], node.input[3]], node.output)
        inner = moves_of(plain, net)
        back = dict(enumerate(_QUANTIZED_PRODUCT))
        moves.kept = [((back[s], axis), to) for (s, axis), to in inner.kept]
        moves.mixed = {(back[s], axis): how for (s, axis), how in inner.mixed.items()}
        return moves
    family = (_LINKS if node.domain == LINK else FAMILIES).get(node.op_type)
    if family is not None:
        family(moves)
    return moves
