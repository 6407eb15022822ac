"""A model of a network whose weights are loaded in the order of its layers, beside its bound.

    python studies/benchmarks/fluid.py [--quick] [--jobs N] [--only TEXT]

The bound of `archgen study` (`bound`) asks each resource alone and holds for every schedule. The
figures beside it are a model, not a bound: another order of layers may take less. It plays both:
weights flow from DRAM or flash in pieces of 4 KiB, in the order of the layers, into memories of a
given size; a layer's cycles on the array begin when its weights are there, and free them when they
end.

    array       cycles of the products, each split over the cores as suits it best
    in order    the same behind the loads of weights, through the memories that may hold weights
    in room     the same, if every memory on chip could hold weights
    x bound, x in order    cycles of the program over each: what a better schedule could still save

Pixels and results move for nothing here, as do vector work and halos: a schedule may be at its
best and above these figures.
"""

from __future__ import annotations

import argparse
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from statistics import geometric_mean

from tables import Case, arguments, compiled, machines, mapped, table

from archgen.schema.load import shipped_names
from archgen.toolchain import Request
from compiler.context import CompileOptions, Context
from compiler.cost.work import least_product_cycles
from compiler.estimate.network_bound import Demands, attainable, load_rate, room
from compiler.pipeline import bind, fuse_tails, nests
from compiler.schedule_ir.layer import Layer
from compiler.target.array_mapping import roles
from compiler.tensor_ir.nest import Nest
from simmodel.arch.element_types import product_type
from simmodel.arch.record import Arch

PIECE = 4096
"""Bytes of one load."""
QUICK = ("soma-edge", "tpu-v1")
COLUMNS = (
    "machine", "cycles", "bound", "by", "array", "in order", "in room", "x bound", "x in order",
)  # fmt: skip


def best_split(nest: Nest, dtype: str, arch: Arch) -> float:
    """Array cycles of a product on all cores, at the split of rows and columns that suits it."""
    axes, matrix, cores = roles(nest), arch.matrix, arch.core_count
    rows, columns, batch, deep = (
        math.prod(nest.dims[dim].extent for dim in dims)
        for dims in (axes.rows, axes.cols, axes.batch, (*axes.inner, *(t.dim for t in axes.taps)))
    )
    splits = [(p, cores // p, 1) for p in range(1, cores + 1)] if batch == 1 else [(1, 1, cores)]
    return min(
        least_product_cycles(arch, dtype, -(-rows // p), -(-columns // q), deep) * -(-batch // b)
        for p, q, b in splits
    ) / matrix.units  # fmt: skip


def layer_demands(layers: Iterable[Layer], arch: Arch, own: Demands) -> Iterator[tuple[float, int]]:
    """Of each layer: cycles of the array, bytes of weights."""
    works = own.works(arch)
    for layer in layers:
        cycles, weights = 0.0, 0
        for nest, binding in zip(layer.nests, layer.bindings, strict=True):
            if nest.depthwise:
                cycles += works[nest.tensor].matrix / arch.core_count
            elif nest.contraction and binding.engine == "matrix":
                left = layer.tensors[nest.operands[0].tensor]
                cycles += best_split(nest, product_type(left.dtype), arch)
            read = (layer.tensors[operand.tensor] for operand in nest.operands)
            weights += sum(tensor.stored for tensor in read if tensor.data is not None)
        yield cycles, weights


def in_order(demands: Iterable[tuple[float, int]], capacity: float, rate: float) -> float:
    """Cycles until the last product ends, where `rate` bytes per cycle come into `capacity`."""
    loaded = computed = held = 0.0
    leaving: deque[tuple[float, float]] = deque()
    for cycles, weights in demands:
        pieces = max(1, math.ceil(weights / PIECE))
        for _ in range(pieces):
            start, held = loaded, held + weights / pieces
            while held > capacity and leaving:
                end, size = leaving.popleft()
                start, held = max(start, end), held - size
            loaded = start + weights / pieces / rate
            computed = max(computed, loaded) + cycles / pieces
            leaving.append((computed, weights / pieces))
    return computed


def row(case: Case) -> tuple[object, ...]:
    """One machine; with the reason where it refuses the network."""
    outcome, result = compiled(case)
    if outcome.figures is None or result is None:
        return (case.arch.name, None, None, outcome.reason, *[None] * 5)
    assert result.search is not None
    demands = Demands(result.search.graph, result.search.parts)
    return (
        case.arch.name,
        outcome.figures.cycles,
        *bounds(demands, case.arch, outcome.figures.cycles),
    )


def bounds(own: Demands, arch: Arch, cycles: int) -> tuple[object, ...]:
    """The bound, what makes it, the figures of this page, and how far `cycles` is above them."""
    bound = attainable(own, own.works(arch), arch)
    demands = list(layer_demands(own.layers, arch, own))
    memory = arch.memories.on_chip()[arch.matrix.weights].size * arch.core_count
    ordered, roomy = (in_order(demands, size, load_rate(arch)) for size in (memory, room(arch)))
    array = sum(each for each, _ in demands)
    least = max(ordered, float(bound.cycles))
    return (
        bound.cycles, bound.resource, *map(round, (array, ordered, roomy)),
        cycles / bound.cycles, cycles / least,
    )  # fmt: skip


def over_fluid(request: Request, cycles: int) -> float:
    """`x in order` of a program that answers `request` and takes so many cycles."""
    ctx = Context(request.arch, CompileOptions(request.dtype, request.host))
    network = bind(fuse_tails(nests(request.model, ctx), ctx), ctx)
    ratio = bounds(Demands(network.graph, network.parts), request.arch, cycles)[-1]
    assert isinstance(ratio, float)
    return ratio


def measure(options: argparse.Namespace, model: str) -> list[tuple[object, ...]]:
    """Every shipped machine with `model`."""
    archs = machines(QUICK if options.quick else shipped_names())
    cases = [Case(arch, model) for arch in archs]
    chosen = [case for case in cases if all(word in case.label for word in options.only)]
    rows = list(mapped(row, chosen, options.jobs))
    ratios = [each[-1] for each in rows if isinstance(each[-1], float)]
    mean = geometric_mean(ratios) if ratios else None
    return [*rows, ("geometric mean", *[None] * 7, mean)]


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print."""
    model = "resnet50"
    title = f"{model}, cycles; `in order` and `in room` are a model, no bound"
    print(table(title, COLUMNS, measure(arguments(__doc__, given), model)))


if __name__ == "__main__":
    main()
