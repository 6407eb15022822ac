"""Provenance: which value of the model each tensor of a program holds, by the model's names.

The one idea: the value is compared in the model's shape, even where the compiler has split an axis
of the model into several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir

from compiler.frontend.rewrite import names_of, origin_of, runs_of
from compiler.tensor_ir.nest import Array, Tensor
from simmodel.arch.dtype import NAMES


class SourceValue(NamedTuple):
    """A value of the model."""

    name: str
    dtype: str
    """Element type in the model."""
    node: int
    """Index of the model's node that computes it: several values of one node may share bytes."""
    origin: str
    """That node as nests name where they come from."""
    runs: tuple[int, ...] = ()
    """By axis of the value, how many axes of the tensor it consists of; empty: the same axes."""

    def shaped(self, values: Array) -> Array:
        """A tensor's values in the shape of the model."""
        if not self.runs:
            return values
        parts = np.split(np.array(values.shape), np.cumsum(self.runs)[:-1])
        return values.reshape([int(part.prod()) for part in parts])


Known = Mapping[str, Sequence[SourceValue]]
"""Tensor -> each value of the model that it holds, in the model's order."""


_SOURCE = "archgen.source"


def mark_source(model: ir.Model, proto: onnx.ModelProto) -> None:
    """Note in `model` which node of `proto` makes each of its values."""
    model.meta[_SOURCE] = {
        name: number for number, node in enumerate(proto.graph.node) for name in node.output
    }


def source_values(model: ir.Model) -> Known:
    """Each value's names in the source model, in its order, and its element type."""
    source: dict[str, int] = model.meta.get(_SOURCE, {})
    order = {name: position for position, name in enumerate(source)}
    return {
        str(value.name): [
            SourceValue(
                name,
                NAMES[value.dtype.numpy()],
                source[name],
                origin_of(node),
                runs_of(model.graph, name),
            )
            for name in sorted(source.keys() & set(names_of(value)), key=order.__getitem__)
        ]
        for node in model.graph
        for value in node.outputs
        if value.name and value.dtype is not None and value.dtype.numpy() in NAMES
    }


# Constants whose element type on the machine cannot hold them.


def lost_constant(tensor: Tensor, data: Array, exact: Array) -> str | None:
    """That a constant underflows in its element type, or exceeds it, in words."""
    limit = float(ml_dtypes.finfo(data.dtype).max)  # type: ignore[no-untyped-call]
    lost = None
    if not -limit <= exact.min(initial=0) <= exact.max(initial=0) <= limit:
        lost = np.isfinite(exact) & (np.abs(exact) > limit)
    if (lost is None or not lost.any()) and not np.any(data):
        lost = exact != 0
    if lost is None or not lost.any():
        return None
    at = int(np.argmax(lost))
    was, became = float(exact.flat[at]), float(data.flat[at])
    return f"{tensor.storage.buffer}: {was:.3g} is {became:.3g} in {tensor.dtype}"
