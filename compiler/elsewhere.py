"""What each product of a compiled network would take on a machine with other engines.

The one idea: cycles layer by layer from the network's own extents, so that an array which is wider
than a layer has channels gains nothing by it. What else such a machine changes is not known here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.bind.engines import depthwise_each
from compiler.bind.machine import array_takes
from compiler.driver import CompileResult
from compiler.layer import Layer
from compiler.nest.ir import Nest, Tensor
from simmodel.arch import Arch
from simmodel.dtype import product_type


@dataclass(frozen=True)
class Products:
    """Cycles of the engines of all cores together, by origin."""

    dense: dict[str, float]
    """Of products on arrays."""
    depthwise: dict[str, float]
    """Of depthwise ones, on the quicker engine that the other machine has for them; missing where
    it has none, or that is the vector engine, which has them already."""


def products_on(result: CompileResult, other: Arch) -> Products:
    """What the products of `result` would take on `other`: those of arrays, and depthwise ones."""
    assert result.search is not None
    found = Products({}, {})
    for layer in (part for part in result.search.parts if isinstance(part, Layer)):
        for nest, way in zip(layer.nests, layer.bindings, strict=True):
            if nest.depthwise:
                cycles = _depthwise(nest, layer.tensors, other, way.engine)
                if cycles < math.inf:
                    found.depthwise[nest.origin] = cycles
            elif way.engine == "matrix":
                dtype = product_type(layer.tensors[nest.operands[0].tensor].dtype)
                found.dense[nest.origin] = array_takes(nest, dtype, other)
    return found


def _depthwise(nest: Nest, tensors: dict[str, Tensor], arch: Arch, engine: str) -> float:
    """Cycles of a depthwise layer on the quicker engine that is made for it; infinite without
    one, or where that is the one it is on."""
    on_array, on_lanes = depthwise_each(nest, tensors, arch)
    if not arch.matrix.depthwise:
        on_array = math.inf
    if engine == "vector":
        return on_array if on_array < on_lanes else math.inf
    return min(on_array, on_lanes)
