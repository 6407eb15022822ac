"""What each product of a compiled network would take on a machine with other engines.

The one idea: cycles layer by layer from the network's own extents, so that an array which is wider
than a layer has channels gains nothing by it. What else such a machine changes is not known here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.bind.machine import array_takes, product_startup
from compiler.driver import CompileResult
from compiler.layer import Layer
from compiler.nest.ir import Nest
from simmodel.arch import Arch
from simmodel.dtype import product_type
from simmodel.isa.cycles import depthwise_cycles

_LANES = ("int8", "int32", "fp32")
"""Types that a vector engine needs for depthwise layers of integers."""


@dataclass(frozen=True)
class Products:
    """Cycles of the engines of all cores together, by origin."""

    dense: dict[str, float]
    """Of products on arrays."""
    depthwise: dict[str, float]
    """Of depthwise ones, on the quicker engine that the other machine has for them; missing where
    it has none."""


def products_on(result: CompileResult, other: Arch) -> Products:
    """What the products of `result` that arrays compute would take on `other`."""
    assert result.search is not None
    found = Products({}, {})
    for layer in (part for part in result.search.parts if isinstance(part, Layer)):
        for nest, way in zip(layer.nests, layer.bindings, strict=True):
            if way.engine != "matrix":
                continue
            dtype = product_type(layer.tensors[nest.operands[0].tensor].dtype)
            if not nest.depthwise:
                found.dense[nest.origin] = array_takes(nest, dtype, other)
            elif (cycles := _depthwise(nest, dtype, other)) < math.inf:
                found.depthwise[nest.origin] = cycles
    return found


def _depthwise(nest: Nest, dtype: str, arch: Arch) -> float:
    """Cycles of a depthwise layer on the quicker engine that is made for it; infinite without
    one."""
    channels = nest.shape[1]
    pixels = math.prod(nest.shape) // channels
    taps = math.prod(dim.extent for dim in nest.dims[nest.rank :]) // nest.sparse
    on_array = on_lanes = math.inf
    if arch.matrix.depthwise:
        native = depthwise_cycles(arch.matrix, dtype, pixels, channels, taps)
        on_array = (product_startup(arch) + native) / arch.matrix.units
    if all(arch.vector.has(name) for name in _LANES):
        vectors = pixels * -(-channels // arch.vector.lanes)
        on_lanes = taps * vectors * arch.vector.cost.multiply / arch.vector.units
    return min(on_array, on_lanes)
