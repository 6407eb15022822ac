"""One role for each input, from all evidence there is.

The one idea: which axis is the batch is decided for all inputs together, strongest evidence first.
What a dimension is called or an operator defines settles an axis (`_certain`); what goes together
with a settled axis follows it; an axis that arrives whole at an output is a batch if nothing
speaks against it; and an axis whose way is lost is one by convention, where sizes agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import onnx
from onnx import helper

from archgen.models.roles.axes import AxisFlow, Token, flow_of
from archgen.models.roles.indices import IndexLimits, limits_of, range_of
from archgen.models.roles.kinds import (
    Fill,
    Kind,
    Role,
    StatedRole,
    mask,
    parse_roles,
    state,
    written_roles,
)
from archgen.models.roles.net import ModelPort, Net, node_label, read_net
from archgen.zoo.shapes import without_data

_BATCH = re.compile(r"batch|(^|[^a-z])bs($|[^a-z])", re.IGNORECASE)
_LENGTH = re.compile(
    r"seq|len|time|frame|height|width|token|position|phoneme|sample_?count|"
    r"(^|_)(h|w|t|rows?|cols?|nodes?|edges?|points?)($|_)|num_",
    re.IGNORECASE,
)
"""Names of dimensions that are no batch, unless an operator defines them to be."""
_INDEX = re.compile(r"(^|_)(ids?|idx|index|indices|pos|positions?)($|[^a-z])", re.IGNORECASE)
UNREAD = "nothing reads it"
_FEW = 7
"""The largest of indices of which nothing else is known."""


@dataclass(frozen=True)
class InferredRoles:
    """The inputs and outputs of a model, and the role of each input."""

    inputs: Mapping[str, ModelPort]
    outputs: Mapping[str, ModelPort]
    roles: Mapping[str, Role]
    output_axes: Mapping[str, int | None]
    """The batch axis of each output, where it can be told."""
    mistakes: tuple[str, ...] = ()
    """What is wrong with the roles that the file states."""

    def is_unread(self, name: str) -> bool:
        """Whether nothing reads an input, so that any size of it will do."""
        return self.roles[name].evidence == UNREAD


def infer_roles(proto: onnx.ModelProto) -> InferredRoles:
    """The roles of the inputs of `proto`, whose dimensions may be free."""
    return _inferred(without_data(proto).SerializeToString(deterministic=True))


@lru_cache(maxsize=4)
def _inferred(light: bytes) -> InferredRoles:
    """Of a model without large data, which is asked for again and again."""
    proto = onnx.ModelProto.FromString(light)
    net = read_net(proto)
    ranks = {name: len(port.dims) for name, port in net.inputs.items()}
    stated, mistakes = parse_roles(written_roles(proto, list(ranks)), ranks, net.outputs)
    limits, flow = limits_of(net), flow_of(net)
    roles = {
        name: _as_stated(_infer_role(net, port, limits.get(name, [])), stated.get(name))
        for name, port in net.inputs.items()
    }
    axes = _Axes(net, flow, roles, stated).settled()
    carried = any(axis is not None for axis, _ in axes.values())
    for name, (axis, evidence) in axes.items():
        roles[name] = replace(roles[name], axis=axis, axis_evidence=evidence)
        if name not in stated and roles[name].kind == "data" and axis is None:
            roles[name] = _role_without_batch(roles[name], net.inputs[name], carried)
    batch = {flow.group((name, axis)) for name, (axis, _) in axes.items() if axis is not None}
    return InferredRoles(net.inputs, net.outputs, roles, _output_axes(flow, batch), tuple(mistakes))


def _role_without_batch(role: Role, port: ModelPort, carried: bool) -> Role:
    """Data of fixed size without a batch, where other inputs carry one, hold for all of it; and
    so does a list of fixed length."""
    short = len(port.dims) == 1
    if any(isinstance(extent, str) for extent in port.dims) or not (short or carried):
        return role
    evidence = "a list of fixed length" if short else "no batch, where other inputs carry one"
    return replace(role, kind="parameter", evidence=evidence, fill="positive" if short else "noise")


def _output_axes(flow: AxisFlow, batch: set[Token]) -> dict[str, int | None]:
    return {
        name: next(
            (a for a in sorted(places) if any(flow.group(token) in batch for token in places[a])),
            None,
        )
        for name, places in flow.outputs.items()
    }


# What it is.


def _infer_role(net: Net, port: ModelPort, limits: list[IndexLimits]) -> Role:
    """The kind of one input and how it is sampled; its axis is not known yet."""
    if not net.readers.get(port.name) and port.name not in net.outputs:
        return Role("parameter", UNREAD, "ones" if "mask" in port.name.lower() else "noise")
    if all(extent == 1 for extent in port.dims):
        for node, slot in net.readers.get(port.name, ()):
            if node.op_type == "If" and slot == 0:
                return Role("parameter", f"chooses the branch of {node_label(node)}", "ones")
    if (pair := state(net, port)) is not None:
        return Role("state", pair[1], "small noise", becomes=pair[0])
    if limits:
        kind: Kind = "data" if all(each.divides for each in limits) else "index"
        shown = "; ".join(dict.fromkeys(each.evidence for each in limits[:2]))
        return Role(kind, shown, "range", *range_of(limits))
    if (hidden := mask(net, port)) is not None:
        return Role("mask", hidden[0], "zeros" if hidden[1] else "ones")
    if not port.dims:
        return Role("parameter", "a scalar", "positive")
    named = _INDEX.search(port.name) is not None
    if named and helper.tensor_dtype_to_np_dtype(port.elem_type).kind in "iub":
        return Role("index", "its name says so", "range", 0, _FEW)
    return Role("data", "nothing speaks for another role")


_FILLS: dict[Kind, Fill] = {
    "data": "noise", "state": "small noise", "index": "range", "mask": "ones",
    "parameter": "positive",
}  # fmt: skip


def _as_stated(found: Role, stated: StatedRole | None) -> Role:
    """`found` with what is said instead; samples follow the evidence where both are of one kind."""
    if stated is None:
        return found
    if stated.becomes is not None:
        evidence = f"as stated, it becomes output {stated.becomes!r}"
        return Role("state", evidence, "small noise", found.low, found.high, stated.becomes)
    # A batch axis alone makes data of a parameter.
    carries = stated.axis is not None and found.kind == "parameter"
    kind = stated.kind or ("data" if carries else found.kind)
    if kind == found.kind:
        return found
    return Role(kind, "as stated", _FILLS[kind], found.low, found.high)


# Which axis is the batch.

Answer = tuple[int | None, str]


class _Axes:
    """Decides on the batch axis of every input."""

    def __init__(
        self, net: Net, flow: AxisFlow, roles: Mapping[str, Role], stated: Mapping[str, StatedRole]
    ) -> None:
        self.net, self.flow, self.roles, self.stated = net, flow, roles, stated
        self.found: dict[str, Answer] = {}

    def settled(self) -> dict[str, Answer]:
        """The batch axis of each input, or None, and why."""
        states = {name for name, role in self.roles.items() if role.kind == "state"}
        for decide, later in (
            (self._certain, ()), (self._fellow, ()), (self._axis_by_flow, states),
            (self._fellow, ()), (self._axis_by_flow, ()),
        ):  # fmt: skip
            for name, port in self.net.inputs.items():
                if name not in {*self.found, *later} and (answer := decide(port)) is not None:
                    self.found[name] = answer
        lost = [port for name, port in self.net.inputs.items() if name not in self.found]
        return self.found | {port.name: self._convention(port, lost) for port in lost}

    def _certain(self, port: ModelPort) -> Answer | None:
        """An axis that is stated, called batch, or defined as the batch by an operator."""
        stated = self.stated.get(port.name)
        if stated is not None and stated.has_axis:
            return stated.axis, "as stated"
        if not port.dims:
            return None, "a scalar has no axes"
        if self.roles[port.name].kind == "parameter":
            return None, "a parameter has none"
        for axis, extent in enumerate(port.dims):
            named = isinstance(extent, str) and extent != f"{port.name}:{axis}"
            if named and _BATCH.search(str(extent)):
                return axis, f"its axis {axis} is called {extent!r}"
        for axis in range(len(port.dims)):
            reader = self.flow.batch.get((port.name, axis))
            if reader is not None:
                return axis, reader
        return None

    def _fellow(self, port: ModelPort) -> Answer | None:
        """An axis that goes with one that is settled."""
        for other, (place, _) in self.found.items():
            if place is None:
                continue
            group = self.flow.group((other, place))
            for axis in range(len(port.dims)):
                token = (port.name, axis)
                if self.flow.group(token) == group and token not in self.flow.mixed:
                    return axis, f"its axis {axis} meets axis {place} of {other!r}"
        return None

    def _axis_by_flow(self, port: ModelPort) -> Answer | None:
        """The first axis, by where it goes."""
        extent, settled = port.dims[0], self._settled_extent()
        mixed = self.flow.mixed.get((port.name, 0))
        if mixed is not None:
            return None, f"no batch: {mixed}"
        if isinstance(settled, int) and isinstance(extent, int) and settled != extent:
            return None, f"no batch: its first extent is {extent}, not {settled}"
        if isinstance(extent, str) and self._is_length(port, extent):
            return None, f"no batch: its first axis is called {extent!r}"
        fixed = isinstance(extent, int) and extent not in (1, settled)
        if fixed and self.roles[port.name].kind == "state":
            return None, "no batch: a state, no data meet its first axis"
        arrives = self.flow.arrives((port.name, 0))
        if arrives is not None:
            name, axis = arrives
            return 0, f"its axis 0 arrives whole at axis {axis} of {name!r}"
        return None

    def _is_length(self, port: ModelPort, extent: str) -> bool:
        """Whether a free axis is called a length, or is an extent of something else as well."""
        named = _LENGTH.search(extent) is not None and extent != f"{port.name}:0"
        later = any(extent in other.dims[1:] for other in self.net.inputs.values())
        return named or later

    def _settled_extent(self) -> int | str | None:
        """The extent of the batch, where an input has one for sure."""
        for name, (axis, _) in self.found.items():
            if axis is not None:
                return self.net.inputs[name].dims[axis]
        return None

    def _convention(self, port: ModelPort, lost: list[ModelPort]) -> Answer:
        """The first axis of what has several, where all such inputs have one extent."""
        extent = port.dims[0]
        if isinstance(extent, str):
            return 0, "by convention: a free first axis whose way is not known"
        extents = {other.dims[0] for other in lost if len(other.dims) > 1}
        settled = self._settled_extent()
        beside = any(len(other.dims) > 1 for other in self.net.inputs.values())
        if len(port.dims) == 1 and (extent != 1 or beside):
            return None, "no batch: a list of fixed length"
        if isinstance(settled, str) and extent == 1:
            return None, f"no batch: fixed at 1, where the batch {settled!r} is free"
        if sum(isinstance(each, int) for each in extents) > 1 and extent != 1:
            return None, "no batch: the first axes of the inputs differ"
        return 0, "by convention: the first axis, whose way is not known"
