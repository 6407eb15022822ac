"""Which axes of a network's values are open: as long as lengths say that are known only when it
runs.

The one idea: as whatever follows from a length, that shows where the network at one length is
compared with itself at another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx_ir as ir

from compiler.graph.rewrite import static_shape

OpenAxes = Mapping[str, frozenset[int]]
"""By the names that values have behind `load`; values all of whose axes are fixed are not there."""

_OPEN = "archgen.open"


def open_axes(model: ir.Model, others: Iterable[ir.Model]) -> OpenAxes:
    """The axes along which values of `model` have another extent in some of `others`, the same
    network at other lengths; all as `load` makes them."""
    shapes = {str(value.name): static_shape(value) for value in _values(model)}
    found: dict[str, frozenset[int]] = {}
    for other in others:
        for value in _values(other):
            name = str(value.name)
            ours, theirs = shapes.get(name, ()), static_shape(value)
            if len(ours) != len(theirs):
                continue
            differ = {axis for axis, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b}
            if differ:
                found[name] = found.get(name, frozenset()) | differ
    return found


def mark_open(model: ir.Model, axes: OpenAxes) -> None:
    """Say of each value of `model`, as `load` makes it, which of its axes are open."""
    for value in _values(model):
        if str(value.name) in axes:
            say_open(value, axes[str(value.name)])


def say_open(value: ir.Value, axes: Iterable[int]) -> None:
    """Say which axes of `value` are open."""
    value.meta[_OPEN] = frozenset(axes)


def open_of(value: ir.Value) -> frozenset[int]:
    """The open axes of `value`; none where nobody has said so."""
    found: frozenset[int] = value.meta.get(_OPEN, frozenset())
    return found


def _values(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.inputs
    for node in model.graph:
        yield from (value for value in node.outputs if value.name)
