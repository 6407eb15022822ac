"""What a network should take, before it is run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.context import CompileResult
from compiler.cost.overlap import host_cycles, in_turn
from compiler.estimate.network_bound import Attainable
from compiler.schedule_ir.layer import Layer
from compiler.target.bind import depthwise_each
from compiler.target.machine import array_takes
from compiler.tensor_ir.nest import HostNode, Nest, Tensor
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class NetworkEstimate:
    """Of one inference of the whole batch."""

    cycles: float
    """Of its groups, and of the host's calls between them."""
    host_ops: int
    bound: Attainable | None = None
    """What no schedule undercuts; None where nobody asked."""


def expected(result: CompileResult, arch: Arch) -> float:
    """Cycles that the program of `result` should take on `arch`.

    Raises ValueError for a result that has lost its search.
    """
    if result.search is None:
        raise ValueError("this result does not say what it was chosen among")
    tensors = result.search.graph.tensors
    steps = (
        (host_cycles(step, tensors, arch), 0.0, 0.0)
        if isinstance(step, HostNode)
        else step.plan.schedule.estimate.step
        for step in result.steps
    )
    return sum(in_turn(steps))


# What each product of a compiled network would take on a machine with other engines.


@dataclass(frozen=True)
class ProductCycles:
    """Cycles of the engines of all cores together, by origin."""

    dense: dict[str, float]
    """Of products on arrays."""
    depthwise: dict[str, float]
    """Of depthwise ones, on the quicker engine that the other machine has for them; missing where
    it has none, or that is the vector engine, which has them already."""


def product_cycles_on(result: CompileResult, other: Arch) -> ProductCycles:
    """What the products of `result` would take on `other`: those of arrays, and depthwise ones."""
    assert result.search is not None
    found = ProductCycles({}, {})
    for layer in (part for part in result.search.parts if isinstance(part, Layer)):
        for nest, way in zip(layer.nests, layer.bindings, strict=True):
            if nest.depthwise:
                cycles = _depthwise_cycles(nest, layer.tensors, other, way.engine)
                if cycles < math.inf:
                    found.depthwise[nest.origin] = cycles
            elif way.engine == "matrix":
                dtype = layer.tensors[nest.operands[0].tensor].dtype
                found.dense[nest.origin] = array_takes(nest, dtype, other)
    return found


def _depthwise_cycles(nest: Nest, tensors: dict[str, Tensor], arch: Arch, engine: str) -> float:
    """Cycles of a depthwise layer on the quicker engine that is made for it; infinite without
    one, or where that is the one it is on."""
    on_array, on_lanes = depthwise_each(nest, tensors, arch)
    if not arch.matrix.depthwise:
        on_array = math.inf
    if engine == "vector":
        return on_array if on_array < on_lanes else math.inf
    return min(on_array, on_lanes)
