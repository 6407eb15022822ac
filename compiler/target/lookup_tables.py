"""Functions of one 8-bit number as one look-up in a table of 256 entries.

The one idea: what an element becomes depends on its code alone, whatever the functions and the
roundings between them, so the network's own arithmetic on all 256 codes is the table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.numerics.nest_error import AGAINST_REFERENCE, forward_error
from compiler.passes import Count, ensured
from compiler.target.machine import no_products, on_array, on_its_array
from compiler.tensor_ir.build import identity
from compiler.tensor_ir.interpreter import run_nest
from compiler.tensor_ir.nest import ZERO, Access, Array, Dim, Nest, NestGraph, Step, at
from compiler.tensor_ir.rewrite import NestRewrite, private, producers, readers, with_steps
from simmodel.arch.base import ENTRIES
from simmodel.arch.dtype import NUMPY
from simmodel.arch.record import LOOKUP, Arch
from simmodel.isa.forms import cost_of, elementwise_form
from simmodel.isa.region import replace

_CODES = ("int8", "uint8")


@dataclass(frozen=True)
class FillTables(NestRewrite):
    """Chains of functions from one 8-bit tensor to another become a look-up in a table, where that
    saves the vector engine work.

    before:
        s[d0] = round(sigmoid(x[d0] * 0.1) / 0.004)
        y[d0] = round(mul(x[d0] * 0.1, s[d0] * 0.004) / 0.05)
    after:
        y[d0] = lookup(x[d0]; 256 numbers)
    """

    most: Count = 8
    """Steps that one table may stand for."""

    @ensured
    def apply(self, graph: NestGraph, arch: Arch) -> NestGraph:
        """`graph` with tables, if `arch` has such."""
        if not self.enabled or arch.vector.table is None or not arch.isa.has(LOOKUP):
            return graph
        made = _Tables(graph, arch)
        for position in reversed(range(len(graph.steps))):
            made.fill(position, self.most)
        return with_steps(graph, made.steps)


class _Tables:
    """Steps of one graph, some of which become tables."""

    def __init__(self, graph: NestGraph, arch: Arch) -> None:
        self.tensors, self.arch = graph.tensors, arch
        self.steps: list[Step | None] = list(graph.steps)
        self.made, self.readers, self.private = producers(graph), readers(graph), private(graph)

    def fill(self, position: int, most: int) -> None:
        """Put a table in place of the step at `position` and of what leads to it alone, as many
        steps as have one source."""
        root = self._nest(position)
        if root is None or self.tensors[root.tensor].dtype not in _CODES:
            return
        cut, best, source = {position}, {position: root}, None
        while len(cut) <= most:
            nests = {each: nest for each in sorted(cut) if (nest := self._nest(each)) is not None}
            if (found := self._source(nests.values())) is not None:
                best, source = nests, found
            inner = self._private_producers(nests.values(), cut)
            if not inner:
                break
            cut.add(max(inner))
        work = sum(
            self.arch.factor(form, cost_of(form))
            for each in best.values()
            for form in [elementwise_form(each.function, len(each.operands))]
        )
        if source is None or work <= self.arch.factor(LOOKUP, "simple"):
            return
        for each in best:
            self.steps[each] = None
        self._put(position, self._looked_up([*best.values()], source), {*best})

    def _put(self, position: int, nest: Nest, instead: set[int]) -> None:
        """`nest` at its place, `instead` of so many steps, or in the product before it if the array
        looks its results up."""
        (source,) = nest.operands
        place = self.made.get(source.tensor)
        product = None if place is None else self.steps[place]
        self.steps[position] = nest
        if place is None or not isinstance(product, Nest) or product.table:
            return
        alone = source.tensor in self.private and {*self.readers[source.tensor]} <= instead
        if not (product.contraction or product.depthwise):
            return
        seen = on_its_array(product, self.tensors, self.arch)
        summed = product.contraction or seen.matrix.depthwise
        same = self.tensors[source.tensor].dtype == self.tensors[nest.tensor].dtype
        if not (alone and summed and same and identity(source, nest.rank)):
            return
        tabled = replace(
            product, tensor=nest.tensor, table=nest.parameters, uncertain=nest.uncertain,
            origin=f"{product.origin}+{nest.origin}",
        )  # fmt: skip
        lacks = no_products(product, self.tensors, seen)
        able = "table" in seen.matrix.writeback
        if lacks is None and able and on_array(tabled, self.tensors, self.arch).direct:
            self.steps[place], self.steps[position] = tabled, None

    def _nest(self, position: int) -> Nest | None:
        """The step at `position` if it is only a function of elements."""
        step = self.steps[position]
        if not isinstance(step, Nest) or not step.elementwise or step.function == "lookup":
            return None
        if step.function == "move" and not identity(step.operands[0], step.rank):
            return None  # copy engines bring elements elsewhere
        tensor = self.tensors[step.tensor]
        late = step.bias is not None or step.multiplier is not None
        return None if late or tensor.rounded or tensor.converted else step

    def _private_producers(self, nests: Collection[Nest], cut: set[int]) -> set[int]:
        """Steps whose results only those of `cut` read."""
        names = {access.tensor for nest in nests for access in nest.operands} & self.private
        made = {self.made[name]: name for name in names if name in self.made}
        return {
            each
            for each, name in made.items()
            if each not in cut and self._nest(each) and set(self.readers[name]) <= cut
        }

    def _source(self, nests: Collection[Nest]) -> Access | None:
        """The only read of `nests` that is neither of a number nor of their own results: of an
        8-bit tensor, always at the same place."""
        own, found = {nest.tensor for nest in nests}, set[Access]()
        if (
            len({nest.shape for nest in nests}) > 1
            or len({n.composite for n in nests} - {None}) > 1
        ):
            return None
        for nest in nests:
            for access in nest.operands:
                inner = access.tensor in own
                if access.pad is not None or (inner and not identity(access, nest.rank)):
                    return None
                if not inner and not self._number(access):
                    found.add(Access(access.tensor, access.index))
        only = found.pop() if len(found) == 1 else None
        return only if only and self.tensors[only.tensor].dtype in _CODES else None

    def _number(self, access: Access) -> bool:
        tensor = self.tensors[access.tensor]
        return tensor.data is not None and tensor.elements == 1

    def _looked_up(self, nests: Sequence[Nest], source: Access) -> Nest:
        """The last of `nests` as a look-up of what all of them compute of each code."""
        kind = NUMPY[self.tensors[source.tensor].dtype]
        arrays: dict[str, Array] = {source.tensor: np.arange(ENTRIES, dtype=np.uint8).view(kind)}
        errors: dict[str, Array | None] = {}
        for nest in nests:
            reads = []
            for access in nest.operands:
                number, tensor = self._number(access), self.tensors[access.tensor]
                reads.append(
                    replace(access, index=(ZERO,) * len(access.index) if number else (at(0),))
                )
                if number:
                    arrays[tensor.name] = np.asarray(tensor.data)
                    errors[tensor.name] = np.broadcast_to(tensor.uncertain, tensor.shape)
            codes = (Dim("code", ENTRIES),)
            line = replace(nest, dims=codes, rank=1, operands=tuple(reads))
            arrays[nest.tensor] = np.zeros(ENTRIES, NUMPY[self.tensors[nest.tensor].dtype])
            with np.errstate(all="ignore"):  # of codes that never occur, too
                run_nest(line, arrays)
            errors[nest.tensor] = forward_error(line, arrays, errors, AGAINST_REFERENCE)
        last = nests[-1]
        off = errors[last.tensor]
        origins = dict.fromkeys(o for each in nests for o in each.origin.split("+"))
        return replace(
            last, function="lookup", operands=(source,),
            low=-np.inf, high=np.inf, scale=None, zero=0,
            parameters=tuple(arrays[last.tensor].astype(float).tolist()),
            uncertain=() if off is None else tuple(np.minimum(off, ENTRIES).tolist()),
            origin="+".join(origins),
            composite=next((each.composite for each in nests if each.composite), None),
        )  # fmt: skip
