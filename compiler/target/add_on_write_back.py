"""Residual additions as the end of a product: what the array adds to its results on the way out.

The one idea: the array does to its finished result what the vector engine would have done, rounding
to the integers between them included, so the numbers are the same and a pass over them is saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.passes import ensured
from compiler.target.machine import no_products, on_array, on_its_array
from compiler.tensor_ir.arithmetic import computes_exactly
from compiler.tensor_ir.build import identity
from compiler.tensor_ir.nest import Access, Nest, NestGraph, Step, Tensor
from compiler.tensor_ir.rewrite import NestRewrite, private, producers, readers, with_steps
from simmodel.arch.element_types import is_float
from simmodel.arch.record import Arch
from simmodel.isa.region import replace


@dataclass(frozen=True)
class AddOnWriteBack(NestRewrite):
    """An addition of two tensors becomes the end of the product that makes one of them.

    before:
        c[n, o] = sum over c of mul(x[n, c], w[o, c]) * m[o] as scale 0.1
        y[n, o] = add(c[n, o] scale 0.1, r[n, o] scale 0.2) as scale 0.3
    after:
        y[n, o] = sum over c of mul(x[n, c], w[o, c]) * m[o] rounded in (0.1, 0.1, 0)
            + r[n, o] scale 0.2 as scale 0.3
    """

    @ensured
    def apply(self, graph: NestGraph, arch: Arch) -> NestGraph:
        """`graph` with such products, if an array of `arch` adds."""
        if not self.enabled or not any("add" in each.writeback for each in arch.arrays.values()):
            return graph
        steps: list[Step | None] = list(graph.steps)
        made, read, alone = producers(graph), readers(graph), private(graph)
        for position, step in enumerate(graph.steps):
            if not isinstance(step, Nest) or not _adds(step, graph.tensors):
                continue
            # The later one of two products takes the sum of the earlier one.
            places = {made[a.tensor]: a for a in step.operands if a.tensor in made}
            for place, access in sorted(places.items(), reverse=True):
                product, name = steps[place], access.tensor
                if not isinstance(product, Nest) or name not in alone or read[name] != [position]:
                    continue
                (other,) = (each for each in step.operands if each is not access)
                found = _added(product, step, access, other, graph.tensors)
                if found is not None and _writes_back(found, graph.tensors, arch):
                    steps[place], steps[position] = None, found
                    break
        return with_steps(graph, steps)


def _adds(nest: Nest, tensors: Mapping[str, Tensor]) -> bool:
    """Whether `nest` adds real values of two tensors, element by element."""
    if nest.function != "add" or not nest.elementwise or len(nest.operands) != 2:
        return False
    kinds = {name: tensor.dtype for name, tensor in tensors.items()}
    target = tensors[nest.tensor]
    plain = not (nest.late or nest.table or target.rounded or target.converted)
    each = all(identity(a, nest.rank) and a.pad is None for a in nest.operands)
    return plain and each and not computes_exactly(nest, kinds)


def _added(
    product: Nest, nest: Nest, access: Access, other: Access, tensors: Mapping[str, Tensor]
) -> Nest | None:
    """`product` with the addition `nest` to its result, read as `access`; None where that is not
    its very end."""
    own, target = tensors[product.tensor], tensors[nest.tensor]
    ends = product.table or product.added is not None or not product.unclipped or own.rounded
    if not product.contraction or ends or own.dtype != target.dtype or product.shape != nest.shape:
        return None
    middle: tuple[float, ...] = ()
    if not is_float(own.dtype):
        if access.scale is None or access.zero != product.zero:
            return None
        # Sums are in steps of the result where the multiplier makes them such.
        middle = (product.scale or 1.0, access.scale, float(access.zero))
    return replace(
        product, tensor=nest.tensor, added=other, middle=middle, low=nest.low, high=nest.high,
        scale=nest.scale, zero=nest.zero, origin=f"{product.origin}+{nest.origin}",
    )  # fmt: skip


def _writes_back(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> bool:
    """Whether the array of `nest` multiplies its operands and finishes its result."""
    seen = on_its_array(nest, tensors, arch)
    able = "add" in seen.matrix.writeback and no_products(nest, tensors, seen) is None
    return able and on_array(nest, tensors, arch).direct
