"""Fuse vector functions into one function that the machine has.

The one idea: `Function.does` states the expression that a function computes, of the machine's
functions and of users' alike, and that expression is searched for in the network. It is fused where
it costs fewer cycles on this machine than the functions that it replaces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from compiler.cost.transfer import Flows
from compiler.passes import Count, ensured
from compiler.target.bind import possible, unsupported
from compiler.target.machine import temporary_type
from compiler.target.vector_functions import match, normal, replaced
from compiler.tensor_ir.nest import Access, Affine, Nest, NestGraph, Step
from compiler.tensor_ir.rewrite import (
    NestRewrite,
    number_access,
    private,
    producers,
    readers,
    with_steps,
)
from simmodel.arch.element_types import is_float, size_of
from simmodel.arch.record import Arch
from simmodel.isa.forms import cost_of, definition, elementwise_form
from simmodel.isa.functions import BINARY, TERNARY, UNARY, Term, functions_in
from simmodel.isa.region import replace

Cut = frozenset[int]
"""Indices of steps that one instruction may compute."""
_CUTS = 64
"""Most sets of steps that are tried for each final step."""


@dataclass(frozen=True)
class FuseFunctions(NestRewrite):
    """Functions of functions become the one that does what they do, where that is cheaper.

    before:
        s[d0] = sigmoid(x[d0])
        t[d0] = mul(x[d0], s[d0])
        y[d0] = mul(t[d0], g[d0])            swiglu(gate, up) does gate * sigmoid(gate) * up
    after:
        y[d0] = swiglu(x[d0], g[d0])
    """

    most: Count = 8
    """Steps that one instruction may stand for."""

    @ensured
    def apply(self, graph: NestGraph, arch: Arch, like: NestGraph | None = None) -> NestGraph:
        """`graph` with functions of `arch` in the place of several steps each: those of `like`, the
        same network at another length, whatever is cheaper."""
        if not self.enabled or not is_float(temporary_type(arch)):
            return graph
        return _Fusion(graph, arch, self.most, like).graph()


@dataclass(frozen=True)
class _Mark:
    """A function of the machine that several steps compute."""

    name: str
    operands: tuple[str, ...]
    parameters: tuple[str, ...]
    term: Term
    """Expression that it computes, in normal form."""


class _Fusion:
    """Fusion of one graph for one machine."""

    def __init__(self, graph: NestGraph, arch: Arch, most: int, like: NestGraph | None) -> None:
        self.before, self.arch, self.most = graph, arch, most
        self.like = None if like is None else {
            step.tensor: _does(step) for step in like.steps if isinstance(step, Nest)
        }  # fmt: skip
        self.tensors, self.buffers = dict(graph.tensors), dict(graph.buffers)
        self.marks = [
            _Mark(name, function.operands[:count], function.parameters, normal(term))
            for count, table in enumerate((UNARY, BINARY, TERNARY), 1)
            for name, function in table.items()
            if arch.isa.has(elementwise_form(name, count))
            for term in function.terms
            if len(functions_in(term)) > 1
        ]
        self.heads = {mark.term[0] for mark in self.marks if isinstance(mark.term, tuple)}
        self.made, self.readers = producers(graph), readers(graph)
        self.private = private(graph)
        self.steps: list[Step | None] = list(graph.steps)
        self.known: dict[str, list[tuple[_Mark, Mapping[str, Term]]]] = {}

    def graph(self) -> NestGraph:
        """The graph after all fusions that are cheaper."""
        for position in reversed(range(len(self.steps))):
            found = self._best_cut(position)
            if found is not None:
                cut, nest = found
                for each in cut:
                    self.steps[each] = None
                self.steps[position] = nest
        if self.steps == [*self.before.steps]:
            return self.before
        changed = replace(self.before, tensors=self.tensors, buffers=self.buffers)
        return with_steps(changed, self.steps)

    def _best_cut(self, position: int) -> tuple[Cut, Nest] | None:
        """The set of steps ending in this one that saves most, and its fused nest."""
        root = self._nest(position)
        if root is None or _head(root) not in self.heads:
            return None
        best, saved = None, 0.0
        for cut in self._cuts(position):
            nest = self._fused(position, cut)
            if nest is None:
                continue
            if self.like is not None:
                if self.like.get(nest.tensor) == _does(nest):
                    return cut, nest
                continue
            parts = [step for step in map(self._nest, cut) if step is not None]
            saving = sum(map(self._step_cycles, parts)) - self._step_cycles(nest)
            if saving > saved:
                best, saved = (cut, nest), saving
        return best

    def _nest(self, position: int) -> Nest | None:
        """The step at `position` if it is only a function of real values."""
        step = self.steps[position]
        if not isinstance(step, Nest) or not step.elementwise:
            return None
        if step.parameters and not definition(step.function, len(step.operands)).does:
            return None
        late = step.bias is not None or step.multiplier is not None
        real = (
            a.scale is not None or is_float(self.tensors[a.tensor].dtype) for a in step.operands
        )
        return None if late or not all(real) else step

    def _cuts(self, position: int) -> Iterator[Cut]:
        """Sets of steps that end in the one at `position`, without other readers in between; the
        smaller ones first."""
        found: list[Cut] = [frozenset((position,))]
        for cut in found:  # which grows
            if len(cut) > 1:
                yield cut
            if len(cut) < self.most:
                wider = (cut | {each} for each in sorted(self._private_producers(cut)))
                found += [each for each in wider if each not in found][: _CUTS - len(found)]

    def _private_producers(self, cut: Cut) -> set[int]:
        """Steps whose results only those of `cut` read."""
        reads = (a for nest in map(self._nest, cut) if nest is not None for a in nest.operands)
        made = {
            self.made.get(a.tensor, -1)
            for a in reads
            if a.pad is None and a.scale is None and a.zero == 0
        }
        return {each for each in made - cut - {-1} if self._inner(each, cut)}

    def _inner(self, position: int, cut: Cut) -> bool:
        """Whether the result of a step may be internal to `cut`."""
        nest = self._nest(position)
        if nest is None or nest.tensor not in self.private or nest.scale is not None:
            return False
        tensor = self.tensors[nest.tensor]
        kept = tensor.rounded or tensor.converted or not is_float(tensor.dtype)
        return not kept and set(self.readers[nest.tensor]) <= cut

    def _fused(self, position: int, cut: Cut) -> Nest | None:
        """One instruction that computes all of `cut`; None: there is none."""
        root, parts = self._nest(position), [n for n in map(self._nest, sorted(cut)) if n]
        assert root is not None
        composites = {each.composite for each in parts} - {None}
        real = root.scale is not None or is_float(self.tensors[root.tensor].dtype)
        if len(composites) > 1 or not real:  # integers are rounded between the steps
            return None
        leaves: dict[Access, str] = {}
        term = self._term(root, root.operands, cut, leaves)
        for mark, found in self._meanings(term):
            named = {name: access for access, name in leaves.items()}
            operands = tuple(self._access_of_term(found[name], named) for name in mark.operands)
            origins = dict.fromkeys(o for each in parts for o in each.origin.split("+"))
            nest = replace(
                root, function=mark.name, operands=operands, origin="+".join(origins),
                parameters=tuple(float(str(found[name])) for name in mark.parameters),
                composite=next(iter(composites), None),
            )  # fmt: skip
            ways = possible(nest, self.tensors, self.arch)
            able = ways[0].engine in ("vector", *self.arch.function_engines)
            if able and not unsupported(nest, self.tensors, self.arch):
                return nest
        return None

    def _meanings(self, term: Term) -> list[tuple[_Mark, Mapping[str, Term]]]:
        """The marks that compute `term`, and what their names are there; many steps are alike."""
        known = repr(term)
        if known not in self.known:
            plain = normal(term)
            found = ((mark, match(mark.term, plain, mark.operands)) for mark in self.marks)
            self.known[known] = [(mark, names) for mark, names in found if names is not None]
        return self.known[known]

    def _term(
        self, nest: Nest, operands: tuple[Access, ...], cut: Cut, leaves: dict[Access, str]
    ) -> Term:
        """The expression of a step in terms of the inputs of `cut`, which get names in `leaves`."""
        inner = tuple(self._operand_term(access, cut, leaves) for access in operands)
        if nest.function == "move":
            return inner[0]
        if not nest.parameters:
            return (nest.function, *inner)
        meant = definition(nest.function, len(inner))
        known = dict(zip(meant.parameters, nest.parameters, strict=True))
        operands_by_name = dict[str, Term](zip(meant.operands, inner, strict=False))
        return replaced(meant.terms[0], operands_by_name | known)

    def _operand_term(self, access: Access, cut: Cut, leaves: dict[Access, str]) -> Term:
        """An operand: a number, the result of a step of `cut`, or a leaf."""
        tensor = self.tensors[access.tensor]
        data = tensor.data if tensor.exact is None else tensor.exact
        if data is not None and data.size == 1 and access.scale is None:
            return float(np.asarray(data).item())
        at = self.made.get(access.tensor)
        nest = None if at is None or at not in cut else self._nest(at)
        if nest is None:
            return leaves.setdefault(access, f"#{len(leaves)}")
        operands = tuple(
            replace(each, index=tuple(_composed(affine, access.index) for affine in each.index))
            for each in nest.operands
        )
        made = self._term(nest, operands, cut, leaves)
        made = ("max", made, nest.low) if nest.low > -math.inf else made
        return ("min", made, nest.high) if nest.high < math.inf else made

    def _access_of_term(self, found: Term, named: Mapping[str, Access]) -> Access:
        if isinstance(found, float):
            return number_access(found, temporary_type(self.arch), self.tensors, self.buffers)
        return named[str(found)]

    def _step_cycles(self, nest: Nest) -> float:
        arch, elements = self.arch, math.prod(nest.shape)
        form = elementwise_form(nest.function, len(nest.operands))
        sizes = [size_of(self.tensors[nest.tensor].dtype)]
        flows = Flows(arch)
        flows.add("local", elements * sizes[0], elements * sizes[0], write=True)
        for access in nest.operands:
            sizes.append(size_of(self.tensors[access.tensor].dtype))
            used = (dim.extent for d, dim in enumerate(nest.dims) if access.uses(d))
            moved = math.prod(used) * sizes[-1]
            flows.add("local", moved, moved)
        name = possible(nest, self.tensors, arch)[0].engine
        engine = arch.lane_engine(name)
        vectors = elements / engine.elements(max(sizes))
        work = max(vectors * arch.factor(form, cost_of(form), name), float(flows.longest()))
        return engine.startup.cycles(arch.clock) + work


def _does(nest: Nest) -> tuple[str, ...]:
    """A function and its operands."""
    return (nest.function, *(access.tensor for access in nest.operands))


def _head(nest: Nest) -> str:
    """The outermost function of a step's full expression."""
    count = len(nest.operands)
    term = normal((nest.function, *definition(nest.function, count).operands[:count]))
    return str(term[0]) if isinstance(term, tuple) else ""


def _composed(affine: Affine, index: tuple[Affine, ...]) -> Affine:
    """`affine` with its loops replaced by `index`."""
    terms: dict[int, int] = {}
    constant = affine.constant
    for dim, factor in affine.terms:
        constant += factor * index[dim].constant
        for inner, step in index[dim].terms:
            terms[inner] = terms.get(inner, 0) + factor * step
    return Affine(tuple((d, f) for d, f in terms.items() if f), constant)
