"""Binding: the engine of each operator, decided once.

    layer 3
      t7: matrix, finished by vector, sums in accumulators; or vector
      t8: vector

The one idea: `compiler.target.machine` says what an engine can do; the choice is written on the
layer. Prices, plans, trees and emission read it there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import compiler.target.machine as machine
from compiler.cost.transfer import CopyShape, Path
from compiler.passes import ContractBroken, ensured
from compiler.schedule_ir.layer import Binding, Layer
from compiler.target.tracking import Same, once
from compiler.target.vector import VectorWork
from compiler.tensor_ir.nest import HostNode, Nest, Tensor, order_of
from simmodel.arch.record import Arch


def possible(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> tuple[Binding, ...]:
    """Engines that may run `nest` on `arch`, the fastest first."""
    if nest.beside is not None:
        return (machine.on_array(nest, tensors, arch),)
    if nest.depthwise:
        array, vector = depthwise_each(nest, tensors, arch)
        ways = (vector, Binding("vector")), (array, machine.on_array(nest, tensors, arch))
        able = sorted((pair for pair in ways if pair[0] < math.inf), key=lambda pair: pair[0])
        return tuple(way for _, way in able)
    if nest.contraction:
        return machine.contraction_ways(nest, tensors, arch)
    if _pure_move(nest, tensors, tensors[nest.operands[0].tensor].dtype):
        copy, vector = moved_each(nest, tensors, arch)
        return (Binding("copy"),) if copy <= vector else (Binding("vector"),)
    lacks = machine.vector_lacks(nest, tensors, arch, finishing=False)
    named = arch.function_engines
    beside = [
        name for name in named if machine.function_engine_lacks(nest, tensors, arch, name) is None
    ]
    if beside:  # among equally fast ones not the vector engine, which finishes products
        choices = [Binding(name) for name in (*beside, *(["vector"] if lacks is None else []))]
        works = (VectorWork(nest, tensors, arch, way, (), nest.shape) for way in choices)
        return (min(works, key=lambda work: float(work.cycles)).way,)
    if lacks is None or machine.scalar_lacks(nest, tensors, arch) is not None:
        return (Binding("vector"),)
    elements = math.prod(dim.extent for dim in nest.dims)
    call = arch.host.latency.cycles(arch.clock) + elements / arch.host.compute * arch.clock
    return (Binding("scalar" if machine.scalar_takes(nest, arch) <= call else "vector"),)


def depthwise_each(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> tuple[float, float]:
    """Cycles of a depthwise product on the array that is best for it, its channels together or
    alone as it has them, and alone on the vector engine; infinite where it has none."""
    names = nest.tensor, *(access.tensor for access in nest.reads)
    key = Same(nest), *(Same(tensors[name]) for name in names)
    return once("depthwise", key, arch, lambda seen: _depthwise_each(nest, tensors, seen))


def _depthwise_each(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> tuple[float, float]:
    dtype = tensors[nest.operands[0].tensor].dtype
    array = vector = math.inf
    seen = machine.on_its_array(nest, tensors, arch)
    if machine.no_products(nest, tensors, seen) is None:
        way = machine.on_array(nest, tensors, arch)
        end = VectorWork(nest, tensors, seen, way, (), nest.shape).cycles
        array = max(machine.array_takes(nest, dtype, seen), float(end))
    if array == math.inf or machine.vector_lacks(nest, tensors, arch, finishing=False) is None:
        work = VectorWork(nest, tensors, arch, Binding("vector"), (), nest.shape)
        vector = float(work.cycles) / nest.sparse
    return array, vector


def moved_each(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> tuple[float, float]:
    """Cycles of a move by copy engines, which handle each run apart that is one on both sides, and
    by the vector engine between copies of rows as they are stored; infinite where it cannot."""
    read, made = nest.operands[0], tensors[nest.tensor]
    source = tensors[read.tensor].storage.strides
    steps, load = made.storage.strides, Path(arch, 1, "dram", "local")
    walked = tuple(
        sum(at.coefficient(d) * stride for at, stride in zip(read.index, source, strict=True))
        for d in range(nest.rank)
    )
    order = reversed(order_of(made.shape, steps))
    pieces = CopyShape.of([(nest.shape[d], steps[d], walked[d]) for d in order]).pieces
    there = replace(made, storage=replace(made.storage, strides=walked))
    straight = float(load.box(made, made.shape).cycles)
    turned = max(straight, float(pieces))
    # A box has no element twice: of those that a move repeats, each would cost a burst of its own.
    if all(stride for stride, extent in zip(walked, nest.shape, strict=True) if extent > 1):
        turned = max(turned, float(load.box(there, made.shape, steps=steps).cycles))
    if turned <= straight or machine.vector_lacks(nest, tensors, arch, finishing=False) is not None:
        return turned, math.inf
    work = VectorWork(nest, tensors, arch, Binding("vector"), (), nest.shape)
    return turned, straight + float(work.cycles)


def _pure_move(nest: Nest, tensors: dict[str, Tensor], source: str) -> bool:
    read = nest.operands[0]
    plain = nest.function == "move" and nest.elementwise and nest.parameters == ()
    kept = source == tensors[nest.tensor].dtype and (nest.scale, nest.zero) == (None, 0)
    raw = read.scale is None and read.zero == 0
    return plain and kept and raw and nest.unclipped


def unsupported(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> str | None:
    """Why no engine of `arch` can run `nest`, or None."""
    way = possible(nest, tensors, arch)[0]
    if way.engine in ("copy", "scalar", *arch.function_engines):
        return None
    if way.engine == "matrix":
        lacks = machine.no_products(nest, tensors, arch.with_array(way.array))
        if lacks is not None or way.direct:
            return lacks
        return machine.vector_lacks(nest, tensors, arch, finishing=True)
    if way.product:
        return machine.vector_multiplies(nest, tensors, arch)
    return machine.vector_lacks(nest, tensors, arch, finishing=False)


Part = Layer | HostNode


@dataclass(frozen=True)
class Bind:
    """Say of each operator which engine runs it, and who finishes what the array adds up.

    before:
        {depthwise; add}
    after:
        {depthwise on matrix, finished on write-back; add on vector}
    """

    depthwise: Literal["quicker", "matrix", "vector"] = "quicker"
    """Engine of depthwise products where both can: the one that takes fewer cycles, or this one."""

    @ensured
    def apply(self, parts: Sequence[Part], arch: Arch) -> tuple[Part, ...]:
        """`parts` with every layer bound to the engines of `arch`."""
        return tuple(
            part if isinstance(part, HostNode) else self.bound(part, arch) for part in parts
        )

    def bound(self, layer: Layer, arch: Arch) -> Layer:
        # Only depthwise products have several ways.
        wanted = self.depthwise
        ways = (
            tuple(sorted(possible(nest, layer.tensors, arch), key=lambda w: w.engine != wanted))
            for nest in layer.nests
        )
        return replace(layer, ways=tuple(ways))

    def ensures(self, made: tuple[Part, ...], parts: Sequence[Part], arch: Arch) -> None:
        """Each operator has a binding that the machine offers."""
        if len(made) != len(parts):
            raise ContractBroken(f"{len(parts)} parts became {len(made)}")
        check_bound(made, arch)


def check_bound(parts: Sequence[Part], arch: Arch) -> None:
    """Raise ContractBroken if an operator of `parts` is not bound, or to an engine that `arch` does
    not offer for it."""
    for layer in (part for part in parts if isinstance(part, Layer)):
        if len(layer.ways) != len(layer.nests):
            raise ContractBroken(f"{layer.name} is not bound")
        for nest, ways in zip(layer.nests, layer.ways, strict=True):
            if set(ways) != set(possible(nest, layer.tensors, arch)):
                said = ", ".join(map(_binding_text, ways)) or "nothing"
                raise ContractBroken(f"{nest.tensor} is bound to {said}, which cannot run it")


def print_bound(parts: Sequence[Part]) -> Iterator[str]:
    """The bindings as lines of text."""
    for number, part in enumerate(parts):
        if isinstance(part, HostNode):
            yield f"call {', '.join(part.outputs)}"
            continue
        yield f"layer {number}"
        for nest, (chosen, *others) in zip(part.nests, part.ways, strict=True):
            alternatives = "".join(f"; or {_binding_text(way)}" for way in others)
            yield f"  {nest.tensor}: {_binding_text(chosen)}{alternatives}"


def _binding_text(binding: Binding) -> str:
    words: list[str] = [binding.adder]
    if not binding.direct:
        words.append("finished by vector")
    if binding.product:
        words.append(f"sums in {binding.sums}")
    return ", ".join(words)
