"""Which engines may run a nest on this machine, the quickest first.

The one idea: a choice between engines is priced as their instructions will run, those of the vector
engine one by one, with start-ups, extents and passes between. An engine that could take a layer,
but slowly, does not get it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from compiler.bind.machine import (
    contraction_ways,
    depthwise_cycles,
    no_products,
    on_array,
    scalar_lacks,
    scalar_takes,
    vector_lacks,
    vector_multiplies,
)
from compiler.bind.vector import VectorWork
from compiler.binding import Binding
from compiler.nest.ir import Nest, Tensor
from simmodel.arch import Arch
from simmodel.dtype import product_type


def possible(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> tuple[Binding, ...]:
    """Engines that may run `nest` on `arch`, the quickest first."""
    if nest.beside is not None:
        return (on_array(nest, tensors, arch),)
    if nest.depthwise:
        array, vector = depthwise_each(nest, tensors, arch)
        ways = (vector, Binding("vector")), (array, on_array(nest, tensors, arch))
        able = [(cycles, way) for cycles, way in ways if cycles < math.inf]
        return tuple(way for _, way in sorted(able, key=lambda pair: pair[0]))
    if nest.contraction:
        return contraction_ways(nest, tensors, arch)
    if _pure_move(nest, tensors, tensors[nest.operands[0].tensor].dtype):
        return (Binding("copy"),)
    if vector_lacks(nest, tensors, arch, finishing=False) is None:
        return (Binding("vector"),)
    return (Binding("scalar" if _scalar_runs(nest, tensors, arch) else "vector"),)


def _scalar_runs(nest: Nest, tensors: Mapping[str, Tensor], arch: Arch) -> bool:
    """Whether the scalar unit can run a nest, and in less than a call of the host takes."""
    if scalar_lacks(nest, tensors, arch) is not None:
        return False
    elements = math.prod(dim.extent for dim in nest.dims)
    return scalar_takes(nest, arch) <= arch.host.latency.cycles(arch.clock) + (
        elements / arch.host.compute * arch.clock
    )


def depthwise_takes(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> float:
    """Cycles of a depthwise product on the quicker engine."""
    return min(depthwise_each(nest, tensors, arch))


def depthwise_each(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> tuple[float, float]:
    """Cycles of a depthwise product on the matrix engine, its channels together or alone as it has
    them, and alone on the vector engine; infinite where it has none."""
    dtype, channels = tensors[nest.operands[0].tensor].dtype, nest.shape[1]
    pixels = math.prod(nest.shape) // channels
    taps = math.prod(dim.extent for dim in nest.dims[nest.rank :]) // nest.sparse
    array = vector = math.inf
    if arch.matrix.peak(product_type(dtype)) > 0:
        cycles = depthwise_cycles(arch, dtype, pixels, channels, taps, nest.sparse)
        way = on_array(nest, tensors, arch)
        end = VectorWork(nest, tensors, arch, way, (), nest.shape).cycles
        array = max(cycles / arch.matrix.units, float(end))
    if array == math.inf or vector_lacks(nest, tensors, arch, finishing=False) is None:
        work = VectorWork(nest, tensors, arch, Binding("vector"), (), nest.shape)
        vector = float(work.cycles) / nest.sparse
    return array, vector


def _pure_move(nest: Nest, tensors: dict[str, Tensor], source: str) -> bool:
    read = nest.operands[0]
    plain = nest.function == "move" and nest.elementwise and nest.parameters == ()
    kept = source == tensors[nest.tensor].dtype and (nest.scale, nest.zero) == (None, 0)
    raw = read.scale is None and read.zero == 0
    return plain and kept and raw and nest.low == -math.inf and nest.high == math.inf


def unsupported(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> str | None:
    """Why no engine of `arch` can run `nest`, or None."""
    way = possible(nest, tensors, arch)[0]
    if way.engine in ("copy", "scalar"):
        return None
    if way.engine == "matrix":
        lacks = no_products(nest, tensors, arch)
        if lacks is not None or way.direct:
            return lacks
        return vector_lacks(nest, tensors, arch, finishing=True)
    if way.product:
        return vector_multiplies(nest, tensors, arch)
    return vector_lacks(nest, tensors, arch, finishing=False)
