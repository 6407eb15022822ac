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
from math import prod

import onnx
from onnx import helper

from archgen.models.roles.axes import AxisFlow, Token, flow_of
from archgen.models.roles.indices import IndexLimits, limits_of, range_of
from archgen.models.roles.kinds import (
    Fill,
    Kind,
    Role,
    begins,
    compared,
    mask,
    size,
    state,
    weights,
)
from archgen.models.roles.net import Dims, ModelPort, Net, node_label, read_net
from archgen.models.roles.stated import StatedRole, parse_roles, written_roles

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
    net = read_net(proto)
    words = written_roles(proto, list(net.inputs))
    ranks = {name: len(port.dims) for name, port in net.inputs.items()}
    stated, mistakes = parse_roles(words, ranks, net.outputs)
    indexing = limits_of(net)
    kind = {
        name: _infer_role(net, port, indexing.get(name, [])) for name, port in net.inputs.items()
    }
    kind = {name: _as_stated(role, stated.get(name)) for name, role in kind.items()}
    kind = {name: _dividing(role, indexing.get(name, [])) for name, role in kind.items()}
    flow = flow_of(net)
    axes = _Axes(net, flow, kind, stated).settled()
    roles = {
        name: replace(role, axis=axes[name][0], axis_evidence=axes[name][1])
        for name, role in kind.items()
    }
    carried = any(role.axis is not None for role in roles.values())
    roles = {
        name: _fixed_data_role(role, net, net.inputs[name], carried) if name not in stated else role
        for name, role in roles.items()
    }
    batch = {flow.group((name, role.axis)) for name, role in roles.items() if role.axis is not None}
    return InferredRoles(net.inputs, net.outputs, roles, _output_axes(flow, batch), tuple(mistakes))


def _fixed_data_role(role: Role, net: Net, port: ModelPort, carried: bool) -> Role:
    """Data of fixed size without a batch, where other inputs carry one, hold for all of it; and
    so does a list of fixed length. What a Scan begins with is a state."""
    short = len(port.dims) == 1
    free = len(_extents(port.dims)) < len(port.dims)
    if role.kind != "data" or role.axis is not None or free or not (short or carried):
        return role
    by = begins(net, port)
    if by is not None:
        return replace(role, kind="state", evidence=f"{by} begins with it", fill="small noise")
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
        return _new_role("parameter", UNREAD, "ones" if "mask" in port.name.lower() else "noise")
    flag = _flag(net, port)
    if flag is not None:
        return flag
    becomes = state(net, port)
    if becomes is not None:
        return replace(_new_role("state", becomes[1], "small noise"), becomes=becomes[0])
    if any(not each.divides for each in limits):
        low, high = range_of(limits)
        shown = "; ".join(dict.fromkeys(each.evidence for each in limits[:2]))
        return replace(_new_role("index", shown, "range"), low=low, high=high)
    hidden = mask(net, port)
    if hidden is not None:
        return _new_role("mask", hidden[0], "zeros" if hidden[1] else "ones")
    weighs = weights(net, port)
    if weighs is not None:
        return _new_role("parameter", weighs[0], "weights" if weighs[1] else "positive")
    return _small(net, port)


def _dividing(role: Role, limits: list[IndexLimits]) -> Role:
    """What whole numbers are divided by is not 0."""
    by = next((each for each in limits if each.divides), None)
    if by is None or role.kind in ("mask", "parameter") or role.low > 0:
        return role
    low, high = range_of(limits)
    evidence = by.evidence if role.kind == "data" else f"{role.evidence}; {by.evidence}"
    return replace(role, evidence=evidence, fill="range", low=low, high=high)


def _flag(net: Net, port: ModelPort) -> Role | None:
    """A scalar that chooses a branch or says how often."""
    if prod(_extents(port.dims)) != 1 or any(isinstance(d, str) for d in port.dims):
        return None
    for node, slot in net.readers.get(port.name, ()):
        if node.op_type == "If" and slot == 0:
            return _new_role("parameter", f"chooses the branch of {node_label(node)}", "ones")
    number = compared(net, port)
    if number is None or _is_real(port):
        return None
    return replace(
        _new_role("parameter", f"is compared with {number}", "range"), low=number, high=number
    )


def _small(net: Net, port: ModelPort) -> Role:
    sized = size(net, port)
    if sized is not None:
        return _new_role("parameter", sized, "ones")
    if not port.dims:
        return _new_role("parameter", "a scalar", "positive")
    if not _is_real(port) and _INDEX.search(port.name):
        return replace(_new_role("index", "its name says so", "range"), high=_FEW)
    return _new_role("data", "nothing speaks for another role")


def _extents(dims: Dims) -> list[int]:
    return [extent for extent in dims if isinstance(extent, int)]


def _is_real(port: ModelPort) -> bool:
    return helper.tensor_dtype_to_np_dtype(port.elem_type).kind not in "iub"


def _new_role(kind: Kind, evidence: str, fill: Fill = "noise") -> Role:
    return Role(kind, evidence, None, "", fill)


_FILLS: dict[Kind, Fill] = {
    "data": "noise",
    "state": "small noise",
    "index": "range",
    "mask": "ones",
    "parameter": "positive",
}


def _as_stated(found: Role, stated: StatedRole | None) -> Role:
    """`found` with what is said instead; samples follow the evidence where both are of one kind."""
    kind = None if stated is None else stated.kind
    if stated is not None and stated.becomes is not None:
        made = replace(
            _new_role("state", f"as stated, it becomes output {stated.becomes!r}", "small noise"),
            becomes=stated.becomes,
        )
        return replace(made, low=found.low, high=found.high)
    if kind is None and stated is not None and stated.axis is not None:
        kind = "data" if found.kind == "parameter" else found.kind
    if kind is None or kind == found.kind:
        return found
    return replace(_new_role(kind, "as stated", _FILLS[kind]), low=found.low, high=found.high)


# Which axis is the batch.

_MADE_UP = re.compile(r"unk|dyn|dim|:|[0-9]", re.IGNORECASE)
"""Names of dimensions that exporters make up, one for each input."""


def _are_two(one: int | str | None, other: int | str | None) -> bool:
    """Whether two free extents have names that people gave them, and different ones."""
    named = [name for name in (one, other) if isinstance(name, str) and not _MADE_UP.search(name)]
    return len(named) == 2 and named[0] != named[1]


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
        certain = (self._stated, self._certain, self._fellow, self._parameter)
        for decide in (*certain, self._whole_data, self._fellow, self._axis_by_flow):
            for name, port in self.net.inputs.items():
                if name not in self.found and (answer := decide(port)) is not None:
                    self.found[name] = answer
        lost = [port for name, port in self.net.inputs.items() if name not in self.found]
        return self.found | {port.name: self._convention(port, lost) for port in lost}

    def _stated(self, port: ModelPort) -> Answer | None:
        stated = self.stated.get(port.name)
        if stated is None or not stated.has_axis:
            return None
        return stated.axis, "as stated"

    def _certain(self, port: ModelPort) -> Answer | None:
        """An axis called batch, or one that an operator defines as the batch."""
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

    def _parameter(self, port: ModelPort) -> Answer | None:
        if not port.dims:
            return None, "a scalar has no axes"
        if self.roles[port.name].kind == "parameter":
            return None, "a parameter has none"
        return None

    def _whole_data(self, port: ModelPort) -> Answer | None:
        return None if self._is_state(port) else self._axis_by_flow(port)

    def _is_state(self, port: ModelPort) -> bool:
        return self.roles[port.name].kind == "state" or begins(self.net, port) is not None

    def _axis_by_flow(self, port: ModelPort) -> Answer | None:
        """The first axis, by where it goes."""
        extent = port.dims[0]
        mixed = self.flow.mixed.get((port.name, 0))
        if mixed is not None:
            return None, f"no batch: {mixed}"
        if not self._agrees(extent):
            return None, f"no batch: its first extent is {extent}, not {self._settled_extent()}"
        if isinstance(extent, str) and self._is_length(port, extent):
            return None, f"no batch: its first axis is called {extent!r}"
        settled = self._settled_extent()
        if _are_two(settled, extent):
            return None, f"no batch: its first axis is called {extent!r}, the batch {settled!r}"
        if self._is_state(port) and isinstance(extent, int) and extent not in (1, settled):
            of = f" of {by}" if (by := begins(self.net, port)) else ""
            return None, f"no batch: a state{of}, no data meet its first axis"
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

    def _agrees(self, extent: int | str | None) -> bool:
        settled = self._settled_extent()
        return not (isinstance(settled, int) and isinstance(extent, int) and settled != extent)

    def _convention(self, port: ModelPort, lost: list[ModelPort]) -> Answer:
        """The first axis of what has several, where all such inputs have one extent."""
        extent = port.dims[0]
        if isinstance(extent, str):
            return 0, "by convention: a free first axis whose way is not known"
        extents = {other.dims[0] for other in lost if len(other.dims) > 1}
        settled = self._settled_extent()
        if len(port.dims) == 1 and extent != 1:
            return None, "no batch: a list of fixed length"
        if isinstance(settled, str) and extent == 1:
            return None, f"no batch: fixed at 1, where the batch {settled!r} is free"
        if len(_extents(tuple(extents))) > 1 and extent != 1:
            return None, "no batch: the first axes of the inputs differ"
        return 0, "by convention: the first axis, whose way is not known"
