"""What an input is, by who reads it: weights, a mask, a state, a size.

The one idea: each question is one function that answers with its evidence or with None; `tell`
asks them in order. Values are followed forward through what keeps them (`_CARRIERS`), so a mask
behind three Reshapes and a Cast is still a mask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Literal, get_args

import onnx
from onnx import TensorProto

from archgen.models.roles.net import Dims, ModelPort, Net, attribute, node_label

_CARRIERS = {
    *("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Slice"),
    *("Expand", "QuantizeLinear", "DequantizeLinear", "Dropout", "Each", "Stack", "Tile", "Gather"),
    "Split",
}
_MASKING = {"Sub", "Mul", "Add", "Not", "Equal", "Greater", "GreaterOrEqual", "Less", "And", "Or"}
_MASKING |= {"LessOrEqual", "Neg", "Where", "Min", "Max", "Concat"}
_MOST = 400
"""Values looked at from one input: a mask or a size is not followed through a whole network."""

Reading = tuple[onnx.NodeProto, int, str]
"""A node, the slot, and the value in it."""


def _forward(
    net: Net, start: str, through: Set[str], with_constants: Set[str] = frozenset()
) -> Iterator[Reading]:
    """Who reads an input, also behind `through` (first operand) and, where all other operands are
    constants, `with_constants`."""
    waiting, seen = [start], {start}
    while waiting and len(seen) < _MOST:
        name = waiting.pop(0)
        for node, slot in net.readers.get(name, ()):
            yield node, slot, name
            others = (n for n in node.input if n and n != name)
            lone = node.op_type in with_constants and all(n in net.weights for n in others)
            if lone or (slot == 0 and node.op_type in through):
                new = [result for result in node.output if result and result not in seen]
                seen.update(new)
                waiting += new


# Weights and other parameters.

_WEIGHTS: dict[str, tuple[int, ...]] = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "ConvInteger": (1,),
    "Gemm": (1, 2),
    "MatMul": (1,),
    "MatMulInteger": (1,),
    "BatchNormalization": (1, 2, 3, 4),
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1,),
    "InstanceNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "LSTM": (1, 2, 3),
    "GRU": (1, 2, 3),
    "RNN": (1, 2, 3),
    "PRelu": (1,),
    "QuantizeLinear": (1, 2),
    "DequantizeLinear": (1, 2),
}
_PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN"}
_VIEWS = {"Identity", "Cast", "Transpose", "DequantizeLinear", "QuantizeLinear", "Reshape"}


def weights(net: Net, port: ModelPort) -> tuple[str, bool] | None:
    """Who takes the input as its weights, and whether that sums products of them.

    A product of two inputs of a network has no weights, unless one is a plain matrix of fixed
    size: of two batches both have one.
    """
    if not all(isinstance(extent, int) for extent in port.dims):
        return None
    for node, slot, _ in _forward(net, port.name, _VIEWS):
        if slot not in _WEIGHTS.get(node.op_type, ()):
            continue
        if node.op_type in ("MatMul", "Gemm") and (len(port.dims) > 2 or port.dims[:1] == (1,)):
            continue
        if node.input[0] in net.weights:
            continue  # constants times the input: the input is the data
        summed = node.op_type in _PRODUCTS and slot < 2 and len(port.dims) > 1
        return f"weights of {node_label(node)}", summed
    return None


_SIZES: dict[str, tuple[int, ...]] = {
    "Reshape": (1,),
    "Expand": (1,),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "Tile": (1,),
    "TopK": (1,),
    "Resize": (2, 3),
    "Upsample": (1,),
    "Slice": (1, 2, 3, 4),
    "Pad": (1,),
    "Loop": (0,),
    "Split": (1,),
    "ReduceSum": (1,),
    "Unsqueeze": (1,),
    "Squeeze": (1,),
    "OneHot": (1,),
}
_COUNTED = {"Add", "Sub", "Mul", "Div", "Floor", "Ceil", "Concat", "Max", "Min", "Round"}


def size(net: Net, port: ModelPort) -> str | None:
    """Who takes its shape, a count or a scale from the input."""
    for node, slot, _ in _forward(net, port.name, _CARRIERS | {"Concat"}, _COUNTED):
        if slot in _SIZES.get(node.op_type, ()):
            return f"{node_label(node)} takes a size from it"
    return None


def compared(net: Net, port: ModelPort) -> int | None:
    """A whole number that the input is compared with: a sample rate, a mode."""
    for node, slot, _ in _forward(net, port.name, _CARRIERS):
        if node.op_type == "Equal":
            value = net.constants.get(node.input[1 - slot])
            if value is not None and len(value) == 1:
                return int(value[0])
    return None


# Masks.


def mask(net: Net, port: ModelPort) -> tuple[str, bool] | None:
    """Who hides something by the input, and whether it is added, so that 0 hides nothing."""
    if port.elem_type == TensorProto.BOOL:
        return "its type is bool", False
    named = "mask" in port.name.lower()
    chooses = named or port.elem_type in (TensorProto.INT32, TensorProto.INT64)
    for node, slot, name in _forward(net, port.name, _CARRIERS, _MASKING):
        if node.op_type == "Where" and slot == 0 and chooses:
            return f"{node_label(node)} chooses by it", False
        scores = node.op_type == "Add" and _is_score(net, node.input[1 - slot])
        if scores and _is_weighed(net, node.output[0]):
            return f"{node_label(node)} adds it to scores of attention", name == _unmodified_name(
                net, port, name
            )
    return ("its name says so", False) if named else None


def _unmodified_name(net: Net, port: ModelPort, name: str) -> str | None:
    """`name` where it is the input as given, in other places; None where it was computed with."""
    while name != port.name:
        maker = net.makers.get(name)
        if maker is None or maker.op_type not in _CARRIERS:
            return None
        name = maker.input[0]
    return name if name == port.name else None


def _is_weighed(net: Net, name: str) -> bool:
    """Whether a value is what a Softmax makes weights of."""
    read = _forward(net, name, _CARRIERS, _MASKING | {"Div"})
    return any(node.op_type == "Softmax" for node, _, _ in read)


def _is_score(net: Net, name: str) -> bool:
    """Whether a value is a product of two computed values, perhaps scaled."""
    for _ in range(8):
        maker = net.makers.get(name)
        if maker is None:
            return False
        if maker.op_type in ("MatMul", "FusedMatMul", "Einsum"):
            return not net.weights.intersection(maker.input)
        scaled = maker.op_type in ("Mul", "Div") and net.weights.intersection(maker.input)
        if not scaled and maker.op_type not in _CARRIERS:
            return False
        name = next((n for n in maker.input if n not in net.weights or not scaled), "")
    return False


# States.

_PASSED_ON = _CARRIERS | {"Concat", "ScatterND", "ScatterElements", "TensorScatter"}
_UPDATES = {"Concat", "ScatterND", "ScatterElements", "TensorScatter", "Slice"}
_LAST: dict[str, dict[int, int]] = {
    "LSTM": {5: 1, 6: 2},
    "GRU": {5: 1},
    "RNN": {5: 1},
    "Attention": {4: 1, 5: 2},
    "MultiHeadAttention": {6: 1, 7: 2},
    "GroupQueryAttention": {3: 1, 4: 2},
}
"""For operators with a memory: slot of the state, index of the result that it becomes."""
_MARKS = re.compile(
    r"(past|present|prev|previous|next|new|old|last|init|initial|output|input|out|in|updated|cur)"
)
_STATEFUL = re.compile(r"(past|state|cache|hidden|memor|buffer|(^|_)[hc](_?0|x|_in|_prev)?($|_))")


def state(net: Net, port: ModelPort) -> tuple[str, str] | None:
    """The output that an input becomes, for the next inference, and the evidence."""
    pairs = [out for out in net.outputs.values() if _is_state_pair(port, out, net)]
    if not pairs or not port.dims or len(net.inputs) < 2:
        return None
    activations = "hidden_states" in port.name  # of a layer to the next, whatever their name
    speaks = not activations and _STATEFUL.search(port.name.lower()) is not None
    reached = _updated_values(net, port.name)
    linked = [out for out in pairs if out.name in reached]
    named = _by_name(port, linked or pairs)
    for out in [named] if named else linked:
        if out.name in reached and (speaks or named or _is_alone(net, port, out)):
            return out.name, f"{reached[out.name]} makes output {out.name!r} of it"
    if named is not None and speaks:
        return named.name, f"output {named.name!r} has its type, its shape and its name"
    return None


def begins(net: Net, port: ModelPort) -> str | None:
    """The Scan or Loop that has the input as a state of its first round."""
    for node, slot, _ in _forward(net, port.name, {"Identity", "Cast"}):
        scanned = attribute(node, "num_scan_inputs", 0)
        walked = node.op_type == "Scan" and slot < len(node.input) - scanned
        if walked or (node.op_type == "Loop" and slot >= 2):
            return node_label(node)
    return None


def _is_alone(net: Net, port: ModelPort, out: ModelPort) -> bool:
    """Whether no other input may as well be what `out` was before."""
    others = (other for other in net.inputs.values() if other.name != port.name)
    return not any(
        _is_state_pair(other, out, net) and out.name in _updated_values(net, other.name)
        for other in others
    )


def _is_state_pair(port: ModelPort, out: ModelPort, net: Net) -> bool:
    """One type, and one shape but for an axis that grows."""
    dims: Dims = net.shapes.get(out.name, out.dims)
    if port.elem_type != out.elem_type or len(dims) != len(port.dims):
        return False
    fixed = [(a, b) for a, b in zip(port.dims, dims, strict=True) if a != b]
    return len(fixed) <= 1 or not any(isinstance(a, int) and isinstance(b, int) for a, b in fixed)


def _by_name(port: ModelPort, outputs: list[ModelPort]) -> ModelPort | None:
    """The output whose name has the same core; the only one for a name that speaks of states."""
    core = _core(port.name)
    same = [out for out in outputs if core and _core(out.name) == core]
    if same:
        return same[0]
    speaks = [out for out in outputs if _STATEFUL.search(out.name.lower())]
    return speaks[0] if len(speaks) == 1 else None


def _core(name: str) -> str:
    """`past_key.0` and `present_key.0` have one core; so have `state` and `stateN`."""
    plain = re.sub(r"(?<=[a-z])[NO]$", "", name).lower()
    return re.sub(r"[^a-z0-9]", "", _MARKS.sub("", plain)).replace("values", "").replace("0", "")


def _updated_values(net: Net, start: str) -> dict[str, str]:
    """Values that an update of `start` becomes: joined, written over, cut or walked on; with who
    does it."""
    found: dict[str, str] = {}
    waiting = [(start, "")]
    seen: set[tuple[str, bool]] = set()
    while waiting:
        name, by = waiting.pop(0)
        for node, slot in net.readers.get(name, ()):
            updates = node.op_type in _UPDATES or node.op_type in _LAST
            shown = by or (node_label(node) if updates else "")
            for result in _becomes(node, slot):
                if (result, bool(shown)) in seen:
                    continue
                seen.add((result, bool(shown)))
                waiting.append((result, shown))
                if shown:
                    found.setdefault(result, shown)
    return found


def _becomes(node: onnx.NodeProto, slot: int) -> list[str]:
    """The results that are the operand in `slot`, updated or in other places."""
    last = _LAST.get(node.op_type, {})
    if slot in last:
        return list(node.output[last[slot] : last[slot] + 1])
    passed = node.op_type in _PASSED_ON and (slot == 0 or node.op_type == "Concat")
    return list(node.output[:1]) if passed else []


# The role of one input: what it is, which of its axes is the batch, and how samples look.

Kind = Literal["data", "state", "index", "mask", "parameter"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Fill = Literal["noise", "small noise", "weights", "range", "positive", "ones", "zeros"]
"""How a seeded sample of an input is drawn:

noise: standard normal; bytes over their range, other integers below 8
small noise: normal, deviation 1/2; integers as noise
weights: normal, deviation 1 / sqrt(products in a sum); integers as noise
range: whole numbers from `low` to `high`
positive: uniform over (1/2, 1]; integers from 1 to 7
ones, zeros: all alike
"""


@dataclass(frozen=True)
class Role:
    """What one input is for, with the evidence in words."""

    kind: Kind
    evidence: str
    axis: int | None
    """The axis of the batch; None: it carries no batch."""
    axis_evidence: str
    fill: Fill = "noise"
    low: int = 0
    """The least and the largest value of a sample, where `fill` is `range`."""
    high: int = 0
    becomes: str | None = None
    """Of a state, the output that it is in the next inference."""

    @property
    def shown(self) -> str:
        """As users write it: `state:1`, `data:0`, `parameter`."""
        return self.kind if self.axis is None else f"{self.kind}:{self.axis}"
