"""Positions that a graph reads and nothing has written: inputs, constants and earlier steps have.

    d[n=3], read as d[0:5] by a Slice of a length that the network only has from 5 on

The one idea: a graph for many lengths follows from long ones. Where a shorter one would do less, as
min(n, 5) positions are fewer than 5, the graph reaches over what is there, and what lies behind is
no zero but whatever was in memory before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from compiler.nest.interp import over_loops, view_of
from compiler.nest.ir import Access, Array, Nest, NestGraph, Step


def unwritten(graph: NestGraph) -> str | None:
    """The first step, or output, of `graph` at one length that takes what nothing has written."""
    written = _nothing(graph)
    for name, tensor in graph.tensors.items():
        if tensor.data is not None or name in graph.inputs:
            written[name][...] = True
    for step in graph.steps:
        missing = _missing(step, written)
        if missing is not None:
            return f"{step.origin} reads positions of {missing} that are not there"
        for name in (step.tensor,) if isinstance(step, Nest) else step.outputs:
            written[name][...] = True
    missing = next((name for name in graph.outputs if not written[name].all()), None)
    return None if missing is None else f"parts of the output {missing} are never made"


def _nothing(graph: NestGraph) -> dict[str, Array]:
    """For each tensor which of its elements are written: none yet."""
    buffers = {name: np.zeros(size, np.bool_) for name, size in graph.buffers.items()}
    return {
        name: view_of(tensor, buffers[tensor.storage.buffer])
        for name, tensor in graph.tensors.items()
    }


def _missing(step: Step, written: Mapping[str, Array]) -> str | None:
    """A tensor of which `step` reads what is not written."""
    if isinstance(step, Nest):
        if 0 in step.shape:
            return None
        read = ((each.tensor, _read(each, step, written)) for each in step.reads)
    else:
        read = ((name, written[name]) for name in step.inputs)
    return next((name for name, positions in read if not positions.all()), None)


def _read(access: Access, nest: Nest, written: Mapping[str, Array]) -> Array:
    """Whether what `access` reads is written, by the loops that say what that is."""
    values = written[access.tensor].astype(np.float32)  # what lies outside has a value
    plain = replace(access, pad=None if access.pad is None else 1.0, scale=None, zero=0)
    seen = over_loops(values, plain, nest)
    own: Array = seen[tuple(slice(None) if access.uses(d) else 0 for d in range(seen.ndim))] > 0
    return own
