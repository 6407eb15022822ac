"""What an input is, by who reads it and by its name: a state, a mask.

The one idea: each question is one function that answers with its evidence or with None; `infer`
asks them in order. Values are followed forward through what keeps them (`CARRIERS`), so a mask
that is added behind three Reshapes is still added as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import onnx
from onnx import TensorProto

from archgen.models.roles.net import CARRIERS, Dims, ModelPort, Net, node_label, op_types
from archgen.schema.tree import guess, listed

# The role of one input: what it is, which of its axes is the batch, and how samples look.

Kind = Literal["data", "state", "index", "mask", "parameter"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Fill = Literal["noise", "small noise", "range", "positive", "ones", "zeros"]
"""How a seeded sample of an input is drawn:

noise: standard normal; bytes over their range, other integers below 8
small noise: normal, deviation 1/2; integers as noise
range: whole numbers from `low` to `high`
positive: uniform over (1/2, 1]; integers from 1 to 7
ones, zeros: all alike
"""


@dataclass(frozen=True)
class Role:
    """What one input is for, with the evidence in words."""

    kind: Kind
    evidence: str
    fill: Fill = "noise"
    low: int = 0
    """The least and the largest value of a sample, where `fill` is `range`."""
    high: int = 0
    becomes: str | None = None
    """Of a state, the output that it is in the next inference."""
    axis: int | None = None
    """The axis of the batch; None: it carries no batch."""
    axis_evidence: str = ""

    @property
    def shown(self) -> str:
        """As users write it: `state:1`, `data:0`, `parameter`."""
        return self.kind if self.axis is None else f"{self.kind}:{self.axis}"


def mask(net: Net, port: ModelPort) -> tuple[str, bool] | None:
    """Why an input hides something, and whether it is added as it is, so that 0 hides nothing."""
    if port.elem_type == TensorProto.BOOL:
        return "its type is bool", False
    if "mask" not in port.name.lower():
        return None
    real = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
    waiting = [port.name] if port.elem_type in real else []
    for name in waiting:
        for node, slot in net.readers.get(name, ()):
            if node.op_type == "Add":
                return f"its name says so; {node_label(node)} adds it", True
            if slot == 0 and node.op_type in CARRIERS:
                waiting += [result for result in node.output if result not in waiting]
    return "its name says so", False


# States.

_UPDATES = op_types("Concat ScatterND ScatterElements Slice")
_MEMORIES: dict[str, dict[int, int]] = {
    "TensorScatter": {0: 0}, "LSTM": {5: 1, 6: 2}, "GRU": {5: 1}, "RNN": {5: 1},
    "Attention": {4: 1, 5: 2}, "MultiHeadAttention": {6: 1, 7: 2},
    "GroupQueryAttention": {3: 1, 4: 2},
}  # fmt: skip
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
    sure = [out for out in linked if speaks or reached[out.name].op_type in _MEMORIES]
    becomes = named or next(iter(sure), None)
    if becomes is not None and becomes.name in reached:
        how = f"{node_label(reached[becomes.name])} makes output {becomes.name!r} of it"
        return becomes.name, how
    if becomes is not None and speaks:
        return becomes.name, f"output {becomes.name!r} has its type, its shape and its name"
    return None


def _is_state_pair(port: ModelPort, out: ModelPort, net: Net) -> bool:
    """One type, and one shape but for an axis that grows."""
    dims: Dims = net.shapes.get(out.name, out.dims)
    if port.elem_type != out.elem_type or len(dims) != len(port.dims):
        return False
    fixed = [(a, b) for a, b in zip(port.dims, dims, strict=True) if a != b]
    return len(fixed) <= 1 or not any(isinstance(a, int) and isinstance(b, int) for a, b in fixed)


def _by_name(port: ModelPort, outputs: list[ModelPort]) -> ModelPort | None:
    """The output whose name has the same core; the only one for a name that speaks of states."""
    core = _name_core(port.name)
    same = [out for out in outputs if core and _name_core(out.name) == core]
    if same:
        return same[0]
    speaks = [out for out in outputs if _STATEFUL.search(out.name.lower())]
    return speaks[0] if len(speaks) == 1 else None


def _name_core(name: str) -> str:
    """`past_key.0` and `present_key.0` have one core; so have `state` and `stateN`."""
    plain = re.sub(r"(?<=[a-z])[NO]$", "", name).lower()
    return re.sub(r"[^a-z0-9]", "", _MARKS.sub("", plain)).replace("values", "").replace("0", "")


def _updated_values(net: Net, start: str) -> dict[str, onnx.NodeProto]:
    """Values that an update of `start` becomes: joined, written over, cut or walked on; with the
    node that does it."""
    found: dict[str, onnx.NodeProto] = {}
    waiting: list[tuple[str, onnx.NodeProto | None]] = [(start, None)]
    seen: set[tuple[str, bool]] = set()
    for name, by in waiting:
        for node, slot in net.readers.get(name, ()):
            updates = node.op_type in _UPDATES or node.op_type in _MEMORIES
            update = by or (node if updates else None)
            for result in _updated_results(node, slot):
                if (result, update is None) not in seen:
                    seen.add((result, update is None))
                    waiting.append((result, update))
                    if update is not None:
                        found.setdefault(result, update)
    return found


def _updated_results(node: onnx.NodeProto, slot: int) -> list[str]:
    """The results that are the operand in `slot`, updated or in other places."""
    last = _MEMORIES.get(node.op_type, {})
    if slot in last:
        return list(node.output[last[slot] : last[slot] + 1])
    passed = node.op_type in CARRIERS | _UPDATES and (slot == 0 or node.op_type == "Concat")
    return list(node.output[:1]) if passed else []


# What users say of inputs: `NAME=state`, `NAME=batch:1`, `NAME=mask:none`, `NAME=state::OUTPUT`. It
# is written into the model, as a metadata property for each input, so that it travels with the
# model wherever that goes and is part of what the model is. A file may carry such properties of its
# own.

BATCH = "batch"
NONE = "none"
_PROPERTY = "archgen.role."


@dataclass(frozen=True)
class StatedRole:
    """A role in a user's words; None: as it is found."""

    kind: Kind | None
    axis: int | None
    has_axis: bool
    """Whether `axis` is said; None is then: there is no batch."""
    becomes: str | None = None
    """Of a state, the output that it is in the next inference."""


def parse_roles(
    given: Mapping[str, str], ranks: Mapping[str, int], outputs: Collection[str]
) -> tuple[dict[str, StatedRole], list[str]]:
    """Roles by input, and everything that is wrong with them; `ranks`: of all inputs."""
    found: dict[str, StatedRole] = {}
    mistakes: list[str] = []
    for name, text in given.items():
        role, wrong = _parsed(text, ranks.get(name), outputs)
        if name not in ranks:
            known = f" (inputs: {', '.join(ranks) or 'none'})"
            wrong = [f"there is no such input{guess(name, ranks)}{known}", *wrong]
        mistakes += [f"role {name}={text}: {each}" for each in wrong]
        if not wrong:
            found[name] = role
    return found, mistakes


def _parsed(text: str, rank: int | None, outputs: Collection[str]) -> tuple[StatedRole, list[str]]:
    word, colon, rest = text.partition(":")
    place, pair, becomes = rest.partition(":")
    axis = int(place) if place.isascii() and place.isdigit() else None
    has_axis = bool(place or (colon and not pair)) or word == BATCH
    wrong: list[str] = []
    if word != BATCH and word not in KINDS:
        known = (BATCH, *KINDS)
        wrong.append(f"unknown role {word!r}{guess(word, known)}; known: {listed(known, 'and')}")
    if pair and word != "state":
        wrong.append(f"only a state becomes an output, such as state::{becomes or 'OUTPUT'}")
    elif pair and becomes not in outputs:
        there = f"{guess(becomes, outputs)} (outputs: {', '.join(outputs)})"
        wrong.append(f"there is no output {becomes!r}{there}")
    if colon and axis is None and place != NONE and not (pair and not place):
        wrong.append(f"{place!r} is no axis: expected a number or {NONE}, such as batch:1")
    if axis is not None and word == "parameter":
        wrong.append("a parameter has no batch axis")
    if axis is not None and rank is not None and axis >= rank:
        wrong.append(f"there is no axis {axis}: the input has {rank}")
    if word == BATCH and not colon:
        axis = 0
        wrong += ["a scalar has no axis for the batch"] if rank == 0 else []
    kind = next((kind for kind in KINDS if kind == word), None)
    return StatedRole(kind, axis, has_axis or kind == "parameter", becomes or None), wrong


def state_roles(proto: onnx.ModelProto, given: Mapping[str, str]) -> None:
    """Writes checked roles into `proto`, over those that it has for the same inputs."""
    names = {_PROPERTY + name for name in given}
    kept = [entry for entry in proto.metadata_props if entry.key not in names]
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    for name in sorted(given):
        proto.metadata_props.add(key=_PROPERTY + name, value=given[name])


def written_roles(proto: onnx.ModelProto, inputs: Sequence[str]) -> dict[str, str]:
    """The words that `proto` carries, by input."""
    words = {entry.key: entry.value for entry in proto.metadata_props}
    return {name: words[_PROPERTY + name] for name in inputs if _PROPERTY + name in words}
