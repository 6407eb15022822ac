"""Functions of one 8-bit number as one look-up in a table of 256 entries.

The one idea: what an element becomes depends on its code alone, whatever the functions and the
roundings between them, so the network's own arithmetic on all 256 codes is the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.numerics.nest_error import AGAINST_REFERENCE, forward_error
from compiler.passes import Count, ensured
from compiler.tensor_ir.build import identity
from compiler.tensor_ir.interpreter import run_nest
from compiler.tensor_ir.nest import ZERO, Access, Array, Dim, Nest, NestGraph, Step, at
from compiler.tensor_ir.rewrite import NestRewrite, private, producers, readers, with_steps
from simmodel.arch.dtype import NUMPY
from simmodel.arch.record import Arch
from simmodel.isa.forms import cost_of, elementwise_form
from simmodel.isa.functions import ENTRIES
from simmodel.isa.region import replace

_CODES = ("int8", "uint8")
_FORM = "vector.unary.lookup"


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
        if not self.enabled or arch.vector.table is None or not arch.isa.has(_FORM):
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
        cut, best = {position}, set[int]()
        if not self._maps_codes(position):
            return
        while len(cut) <= most:
            if self._source(position, cut) is not None:
                best = set(cut)
            inner = self._private_producers(cut)
            if not inner:
                break
            cut.add(max(inner))
        source, parts = self._source(position, best), [self._nest(each) for each in sorted(best)]
        nests = [nest for nest in parts if nest is not None]
        if source is None or sum(map(self._cycles, nests)) <= self.arch.factor(_FORM, "simple"):
            return
        if len({nest.composite for nest in nests} - {None}) > 1:
            return
        for each in best:
            self.steps[each] = None
        self.steps[position] = self._looked_up(nests, source)

    def _maps_codes(self, position: int) -> bool:
        nest = self._nest(position)
        return nest is not None and self.tensors[nest.tensor].dtype in _CODES

    def _nest(self, position: int) -> Nest | None:
        """The step at `position` if it is only a function of elements."""
        step = self.steps[position]
        if not isinstance(step, Nest) or not step.elementwise or step.function == "lookup":
            return None
        tensor = self.tensors[step.tensor]
        late = step.bias is not None or step.multiplier is not None
        return None if late or tensor.rounded or tensor.converted else step

    def _private_producers(self, cut: set[int]) -> set[int]:
        """Steps whose results only those of `cut` read."""
        nests = (nest for nest in map(self._nest, cut) if nest is not None)
        names = {access.tensor for nest in nests for access in nest.operands} & self.private
        made = {self.made[name]: name for name in names if name in self.made}
        return {
            each
            for each, name in made.items()
            if each not in cut and self._nest(each) and set(self.readers[name]) <= cut
        }

    def _source(self, position: int, cut: set[int]) -> Access | None:
        """The only read of `cut` that is neither of a number nor of its own results: of an 8-bit
        tensor, always at the same place."""
        shape, found = None, set[Access]()
        for nest in map(self._nest, cut):
            assert nest is not None
            if shape not in (None, nest.shape):
                return None
            shape = nest.shape
            for access in nest.operands:
                if self._number(access):
                    continue
                if self.made.get(access.tensor) not in cut:
                    found.add(Access(access.tensor, access.index, access.pad))
                elif access.pad is not None or not identity(access, nest.rank):
                    return None
        only = next(iter(found)) if len(found) == 1 else None
        coded = only is not None and self.tensors[only.tensor].dtype in _CODES
        return only if coded and only is not None and only.pad is None else None

    def _number(self, access: Access) -> bool:
        tensor = self.tensors[access.tensor]
        return tensor.data is not None and tensor.elements == 1

    def _cycles(self, nest: Nest) -> float:
        """Cycles for each vector of lanes."""
        form = elementwise_form(nest.function, len(nest.operands))
        return self.arch.factor(form, cost_of(form))

    def _looked_up(self, nests: list[Nest], source: Access) -> Nest:
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
