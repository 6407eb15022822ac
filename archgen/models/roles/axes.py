"""How far each axis of each input goes through the network.

The one idea: an axis along which the network computes every position for itself arrives at the
outputs whole: nothing on its way sums, slides or picks along it. That is what a batch is, whatever
its name. An operator *keeps* an axis where every position of its result needs that position of the
operand alone, and *mixes* it where positions meet; an operator without a rule is taken to work
element by element where ranks say so. Axes of two inputs that come to lie on one are of one extent
and go together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import onnx

from archgen.models.roles.net import Dim, Dims, Net, node_label, op_types
from archgen.zoo.shapes import attribute

Token = tuple[str, int]
"""An input and one of its axes."""
Places = dict[int, frozenset[Token]]
"""For axes of a value the tokens that lie there."""

_MANY = 1


@dataclass
class AxisFlow:
    """What becomes of the axes of all inputs."""

    mixed: dict[Token, str] = field(default_factory=dict)
    """Who mixes an axis first, and how: `Conv 'c' sums over it`."""
    batch: dict[Token, str] = field(default_factory=dict)
    """Who reads an axis as the batch, by its own definition."""
    outputs: dict[str, Places] = field(default_factory=dict)
    _fellow: dict[Token, Token] = field(default_factory=dict)

    def arrives(self, token: Token) -> tuple[str, int] | None:
        """An output where the axis lies whole, and where there."""
        for name, places in self.outputs.items():
            for axis, tokens in places.items():
                if token in tokens:
                    return name, axis
        return None

    def group(self, token: Token) -> Token:
        """The same for all axes that go together."""
        while token in self._fellow:
            token = self._fellow[token]
        return token

    def join(self, tokens: Iterable[Token]) -> None:
        """These axes go together."""
        first, *others = sorted({self.group(token) for token in tokens}) or [("", 0)]
        for other in others:
            self._fellow[other] = first


@dataclass
class _AxisMoves:
    """What one node does with the axes of its operands."""

    node: onnx.NodeProto
    net: Net
    kept: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Slot and axis of an operand, index and axis of a result."""
    mixed: dict[tuple[int, int], str] = field(default_factory=dict)
    """How positions along an axis meet, as a verb that the node is the subject of."""
    batch: list[tuple[int, int]] = field(default_factory=list)
    """Axes that the operator's definition names the batch."""

    def rank(self, slot: int) -> int:
        """Rank of an operand; 0 where there is none or it is not known."""
        return len(self.dims(slot))

    def dims(self, slot: int) -> Dims:
        """Extents of an operand; none where they are not known."""
        return self.net.shapes.get(self.node.input[slot], ()) if slot < len(self.node.input) else ()

    def result(self) -> Dims | None:
        """Extents of the first result; None where they are not known."""
        return self.net.shapes.get(self.node.output[0])

    def numbers(self, slot: int, name: str) -> list[int] | None:
        """Whole numbers that an operand or, in older operator sets, an attribute has."""
        given = self.node.input
        if slot < len(given) and given[slot]:
            value = self.net.constants.get(given[slot])
            return None if value is None else [int(number) for number in value]
        stated = attribute(self.node, name, None)
        return [stated] if isinstance(stated, int) else None if stated is None else list(stated)

    def axis(self, slot: int, default: int) -> int:
        """The attribute that names an axis of an operand, counted from the front."""
        stated = int(attribute(self.node, "axis", default))
        return stated % self.rank(slot) if self.rank(slot) else stated

    def map_axis(self, slot: int, axis: int, to: int, results: Iterable[int] | None = None) -> None:
        """`axis` of an operand becomes axis `to` of the results, of all where none are named."""
        if 0 <= axis < self.rank(slot):
            into = range(len(self.node.output)) if results is None else results
            self.kept += [(slot, axis, result, to) for result in into]

    def mix(self, slot: int, axis: int, how: str) -> None:
        """Positions along `axis` of an operand meet."""
        if 0 <= axis < self.rank(slot):
            self.mixed[slot, axis] = how

    def spread(
        self, slot: int, over: Collection[int] = (), how: str = "", gone: Collection[int] = ()
    ) -> None:
        """Axes `over` are mixed; of all others those that are not `gone` are kept, in order."""
        for axis in range(self.rank(slot)):
            if axis in over:
                self.mix(slot, axis, how)
            elif axis not in gone:
                self.map_axis(slot, axis, axis - sum(each < axis for each in gone))


def flow_of(net: Net) -> AxisFlow:
    """Follows every axis of every input of `net`."""
    flow = AxisFlow()
    lying: dict[str, Places] = {
        name: {axis: frozenset({(name, axis)}) for axis in range(len(port.dims))}
        for name, port in net.inputs.items()
    }
    for node in net.nodes:
        moves = _AxisMoves(node, net)
        _RULES.get(node.op_type, _aligned)(moves)
        _record(moves, lying, flow)
        for name, places in _carried(moves, lying, flow).items():
            known = lying.setdefault(name, {})
            for axis, tokens in places.items():
                known[axis] = known.get(axis, frozenset()) | tokens
    flow.outputs = {name: lying.get(name, {}) for name in net.outputs}
    return flow


def _record(moves: _AxisMoves, lying: dict[str, Places], flow: AxisFlow) -> None:
    given = moves.node.input
    for (slot, axis), how in moves.mixed.items():
        for token in lying.get(given[slot], {}).get(axis, ()):
            flow.mixed.setdefault(token, f"{node_label(moves.node)} {how}")
    for slot, axis in moves.batch:
        if axis >= moves.rank(slot):
            continue
        extent = moves.dims(slot)[axis]
        for name, place in lying.get(given[slot], {}).get(axis, frozenset()):
            # An axis that is merged with others there is not the batch by itself.
            if slot or extent is None or extent == moves.net.inputs[name].dims[place]:
                by = f"{node_label(moves.node)} reads it as its batch"
                flow.batch.setdefault((name, place), by)


def _carried(moves: _AxisMoves, lying: dict[str, Places], flow: AxisFlow) -> dict[str, Places]:
    """The tokens of each result; what is stretched over a longer axis, or meets a constant that
    has a value of its own for each position, does not go on."""
    node, net = moves.node, moves.net
    landing: dict[tuple[str, int], list[tuple[Dim, str, frozenset[Token]]]] = {}
    for slot, axis, result, to in moves.kept:
        if result < len(node.output):
            tokens = lying.get(node.input[slot], {}).get(axis, frozenset())
            part = moves.dims(slot)[axis], node.input[slot], tokens
            landing.setdefault((node.output[result], to), []).append(part)
    found: dict[str, Places] = {}
    for (name, axis), parts in landing.items():
        extents = [extent for extent, _, _ in parts]
        extents += [e for e in net.shapes.get(name, ())[axis : axis + 1] if isinstance(e, int)]
        longer = any(extent != _MANY for extent in extents)
        lists = [tokens for extent, _, tokens in parts if not (longer and extent == _MANY)]
        arrived = frozenset[Token]().union(*lists)
        own = (extent for extent, operand, _ in parts if operand in net.weights)
        if any(isinstance(extent, int) and extent > _MANY for extent in own):
            for token in arrived:
                flow.mixed.setdefault(token, f"{node_label(node)} has a constant for each position")
        elif arrived:
            flow.join(arrived)
            found.setdefault(name, {})[axis] = arrived
    return found


# What operators do with axes: a rule for each family.


def _aligned(moves: _AxisMoves) -> None:
    """Element by element, broadcast; some have scales, limits and sizes behind the first."""
    slots = [s for s, name in enumerate(moves.node.input) if moves.net.rank(name) is not None]
    slots = slots[:1] if moves.node.op_type in _FIRST_ALONE else slots
    after = moves.result()
    if after is None or any(moves.rank(slot) > len(after) for slot in slots):
        return
    for slot in slots:
        first = len(after) - moves.rank(slot)
        for axis, extent in enumerate(moves.dims(slot)):
            one_size = extent in (_MANY, after[first + axis])
            if one_size or not isinstance(extent, int) or not isinstance(after[first + axis], int):
                moves.map_axis(slot, axis, first + axis)


def _lost(moves: _AxisMoves) -> None:
    """Results lie where values say, not axes."""


def _image(moves: _AxisMoves) -> None:
    """Batch, channels, and windows over the rest."""
    kind = moves.node.op_type
    if kind not in ("Resize", "Upsample"):
        moves.batch.append((0, 0))
    moves.map_axis(0, 0, 0)
    if kind in _BY_CHANNEL:
        moves.map_axis(0, 1, 1)
    else:
        moves.mix(0, 1, "sums over it")
    for axis in range(2, moves.rank(0)):
        moves.mix(0, axis, "works over a neighbourhood along it")


def _batch_norm(moves: _AxisMoves) -> None:
    moves.batch.append((0, 0))
    moves.spread(0)


def _matmul(moves: _AxisMoves) -> None:
    """The last axis of the left meets the last but one of the right; each may be transposed."""
    other = 3 if moves.node.op_type in ("QLinearMatMul", "QGemm") else 1
    left, right = moves.rank(0), moves.rank(other)
    rank = max(left, right)
    for slot, own in ((0, left), (other, right)):
        for axis in range(own - 2):
            moves.map_axis(slot, axis, axis + rank - own)
    rows, cols = min(1, left - 1), min(1, right - 1)
    turned = [bool(attribute(moves.node, name, 0)) for name in ("transA", "transB")]
    moves.mix(0, left - 1 - rows * turned[0], "sums over it")
    moves.mix(other, right - 1 - cols * (not turned[1]), "sums over it")
    if rows:
        moves.map_axis(0, left - 2 + turned[0], max(rank, 2) - 2)
    if cols:
        moves.map_axis(other, right - 1 - turned[1], max(rank, 2) - 2 + rows)
    if moves.node.op_type == "Gemm":
        for axis in range(moves.rank(2)):
            moves.map_axis(2, axis, axis + 2 - moves.rank(2))


def _normalization(moves: _AxisMoves) -> None:
    """Over all axes from one on; a Softmax over one alone, in newer operator sets."""
    single = "max" in moves.node.op_type
    old = single and moves.net.opset < 13
    first = moves.axis(0, 1 if old else -1)
    last = first + 1 if single and not old else moves.rank(0)
    moves.spread(0, range(first, last), "normalizes over it")


def _along(moves: _AxisMoves) -> None:
    """Along one axis, which results have as well."""
    kind = moves.node.op_type
    default, how = _ALONG[kind]
    for slot in range(len(moves.node.input)) if kind == "Concat" else (0,):
        stated = moves.numbers(1, "axis") if kind == "CumSum" else None
        axis = stated[0] if stated else moves.axis(slot, default)
        moves.spread(slot, (axis % max(moves.rank(slot), 1),), how)


def _reduction(moves: _AxisMoves) -> None:
    one = moves.node.op_type in ("ArgMax", "ArgMin")
    rank = moves.rank(0)
    axes = moves.numbers(1, "axis" if one else "axes") or ([0] if one else [])
    if not axes and len(moves.node.input) > 1 and moves.node.input[1]:
        return  # axes that are computed
    if not axes and attribute(moves.node, "noop_with_empty_axes", 0):
        moves.spread(0)
        return
    over = {axis % rank for axis in axes} if axes and rank else set(range(rank))
    moves.spread(0, over, "reduces it", () if attribute(moves.node, "keepdims", 1) else over)


def _gather(moves: _AxisMoves) -> None:
    """Positions of an axis are taken; who takes the only one, or counts all of them by the shape
    alone, may as well mean the batch."""
    axis, rank, index = moves.axis(0, 0), moves.rank(1), moves.node.input[1]
    if index in moves.net.valued:
        moves.mix(0, axis, "is indexed along it")
    elif index in moves.net.weights and moves.dims(0)[axis : axis + 1] != (1,):
        moves.mix(0, axis, "takes single positions of it")
    for place in range(moves.rank(0)):
        if place != axis:
            moves.map_axis(0, place, place if place < axis else place + rank - 1)
    for place in range(rank):
        moves.map_axis(1, place, axis + place)


def _transpose(moves: _AxisMoves) -> None:
    order = attribute(moves.node, "perm", None) or reversed(range(moves.rank(0)))
    for to, axis in enumerate(order):
        moves.map_axis(0, axis, to)


def _reshape(moves: _AxisMoves) -> None:
    """Equal extents from the front, then from the back; of a block in between the first axis of
    either side stands for all of it: in memory it is the outermost."""
    before, after = moves.dims(0), moves.result()
    if after is None:
        return
    copied = moves.numbers(1, "shape") or []
    least, front, back = min(len(before), len(after)), 0, 1
    while front < least and (
        copied[front : front + 1] == [0]
        or (before[front] is not None and before[front] == after[front])
    ):
        moves.map_axis(0, front, front)
        front += 1
    while back <= least - front and before[-back] is not None and before[-back] == after[-back]:
        moves.map_axis(0, len(before) - back, len(after) - back)
        back += 1
    block = before[front : len(before) - back + 1], after[front : len(after) - back + 1]
    if all(block) and before[front] != 1 and after[front] != 1:
        moves.map_axis(0, front, front)


def _squeeze(moves: _AxisMoves) -> None:
    axes = moves.numbers(1, "axes")
    axes = [a for a, e in enumerate(moves.dims(0)) if e == 1] if axes is None else axes
    moves.spread(0, gone={axis % max(moves.rank(0), 1) for axis in axes})


def _unsqueeze(moves: _AxisMoves) -> None:
    axes = moves.numbers(1, "axes")
    if axes is not None:
        rank = moves.rank(0) + len(axes)
        new = {axis % rank for axis in axes}
        for axis, to in enumerate(place for place in range(rank) if place not in new):
            moves.map_axis(0, axis, to)


_ALL = 10**8
"""Ends of slices from here on mean: to the end; exporters write this number and larger ones."""


def _slice(moves: _AxisMoves) -> None:
    """Mixed are axes of which a part is cut, by the limits or by the extents."""
    rank, after = moves.rank(0), moves.result() or ()
    starts, ends = moves.numbers(1, "starts"), moves.numbers(2, "ends")
    axes = moves.numbers(3, "axes") or list(range(len(starts or ends or [])))
    cut = {axis % rank: number for number, axis in enumerate(axes)} if rank else {}
    for axis, extent in enumerate(moves.dims(0)):
        number = cut.get(axis)
        same = extent is not None and after[axis : axis + 1] == (extent,)
        if number is None or same or extent == 1:
            moves.map_axis(0, axis, axis)
        elif starts and ends and (starts[number] or ends[number] < _ALL):
            moves.mix(0, axis, "cuts pieces out of it")
        elif starts and ends:
            moves.map_axis(0, axis, axis)


def _pad(moves: _AxisMoves) -> None:
    pads, rank = moves.numbers(1, "pads"), moves.rank(0)
    if pads is None or len(pads) != 2 * rank:
        moves.map_axis(0, 0, 0)
    else:
        padded = [axis for axis in range(rank) if pads[axis] or pads[axis + rank]]
        moves.spread(0, padded, "pads it")


def _recurrent(moves: _AxisMoves) -> None:
    """Time, batch, features in; all states of one direction and the last ones out."""
    inner = attribute(moves.node, "layout", 0)
    time, batch = (1, 0) if inner else (0, 1)
    last = range(1, len(moves.node.output))
    moves.batch += [(0, batch), (4, 0), (5, batch), (6, batch)]
    moves.mix(0, time, "walks along it")
    moves.mix(0, 2, "sums over it")
    moves.map_axis(0, batch, 0 if inner else 2, (0,))
    for slot in (0, 5, 6):
        moves.map_axis(slot, batch, batch, last)
    for slot in (5, 6):
        moves.mix(slot, time, "takes one position for each direction")


def _attention(moves: _AxisMoves) -> None:
    """Operators of whole blocks: the first axis of what they read is the batch."""
    for slot, name in enumerate(moves.node.input):
        if moves.rank(slot) > 2 and name not in moves.net.weights:
            moves.batch.append((slot, 0))
            moves.map_axis(slot, 0, 0)


def _scan(moves: _AxisMoves) -> None:
    """What is scanned is taken apart along its first axis."""
    states = len(moves.node.input) - int(attribute(moves.node, "num_scan_inputs", 0))
    for slot in range(states, len(moves.node.input)):
        moves.mix(slot, 0, "walks along it")


_BY_CHANNEL = op_types(
    "MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool InstanceNormalization "
    "Resize Upsample"
)
_FIRST_ALONE = op_types(
    "Clip Dropout QuantizeLinear DequantizeLinear DynamicQuantizeLinear CastLike Trilu Expand Tile"
)
_ALONG = {
    "Concat": (1, "joins it with others"),
    "Split": (0, "takes it apart"),
    **dict.fromkeys(("GatherElements", "ScatterElements"), (0, "is indexed along it")),
    **dict.fromkeys(("CumSum", "TopK", "LpNormalization"), (-1, "works along it")),
}
"""The default axis, and what is done along it."""

_Rule = Callable[[_AxisMoves], None]
_FAMILIES: dict[_Rule, str] = {
    _image: "Conv ConvTranspose ConvInteger QLinearConv FusedConv DeformConv LRN DepthToSpace "
    f"SpaceToDepth GridSample GroupNormalization {' '.join(sorted(_BY_CHANNEL))}",
    _batch_norm: "BatchNormalization",
    _matmul: "MatMul MatMulInteger QLinearMatMul FusedMatMul MatMulIntegerToFloat Gemm QGemm",
    _normalization: "LayerNormalization RMSNormalization SkipLayerNormalization Softmax "
    "LogSoftmax Hardmax",
    _along: " ".join(_ALONG),
    _reduction: "ArgMax ArgMin ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 "
    "ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare",
    _gather: "Gather",
    _transpose: "Transpose",
    _reshape: "Reshape Flatten",
    _squeeze: "Squeeze",
    _unsqueeze: "Unsqueeze",
    _slice: "Slice",
    _pad: "Pad",
    _recurrent: "LSTM GRU RNN",
    _attention: "Attention MultiHeadAttention GroupQueryAttention RotaryEmbedding TensorScatter",
    _scan: "Scan",
    _lost: "NonZero NonMaxSuppression Unique Compress Einsum GatherND ScatterND RoiAlign OneHot "
    "MaxRoiPool CenterCropPad AffineGrid Col2Im DFT STFT Shape Size Range ConstantOfShape EyeLike "
    "If Loop",
}
_RULES = {name: rule for rule, names in _FAMILIES.items() for name in names.split()}
