"""Functions that the vector engine lacks, made of those that it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from compiler.bind.alike import replaced
from compiler.bind.machine import temporary_type
from compiler.nest.base import check_nests
from compiler.nest.ir import (
    Access,
    Nest,
    NestGraph,
    Step,
    Storage,
    Tensor,
    at,
    dense,
    order_of,
)
from compiler.nest.rewrite import number_access
from compiler.options import Omittable
from compiler.passes import ensured
from simmodel.arch import Arch
from simmodel.dtype import is_float
from simmodel.isa.forms import cost_of, definition, elementwise_form
from simmodel.isa.terms import Term


@dataclass(frozen=True)
class ExpandFunctions(Omittable):
    """Make functions that the vector engine lacks of those that it has.

    before:
        s[d0] = silu(x[d0])                    isa: {without: vector.unary.silu}
    after:
        s.1[d0] = sigmoid(x[d0])
        s[d0] = mul(x[d0], s.1[d0])
    """

    @ensured
    def apply(self, graph: NestGraph, arch: Arch) -> NestGraph:
        """`graph` without functions that `arch` lacks, where others stand for them."""
        if not self.enabled or not arch.isa.without or not is_float(temporary_type(arch)):
            return graph
        made = _Made(graph, arch)
        return made.graph(tuple(step for each in graph.steps for step in made.steps(each)))

    def ensures(self, made: NestGraph, graph: NestGraph, arch: Arch) -> None:
        """The contract of every graph of nests."""
        del graph, arch
        check_nests(made)


class _Made:
    """New tensors and steps for one graph."""

    def __init__(self, graph: NestGraph, arch: Arch) -> None:
        self.before, self.arch = graph, arch
        self.tensors, self.buffers = dict(graph.tensors), dict(graph.buffers)

    def graph(self, steps: tuple[Step, ...]) -> NestGraph:
        """The graph with `steps`."""
        return replace(self.before, tensors=self.tensors, buffers=self.buffers, steps=steps)

    def steps(self, step: Step) -> Iterator[Step]:
        """`step`, or those that do its work."""
        whole = self._term(step) if isinstance(step, Nest) else None
        if whole is None:
            yield step
            return
        assert isinstance(step, Nest)
        meant = definition(step.function, len(step.operands))
        numbers = dict(zip(meant.parameters, step.parameters, strict=True))
        reads = dict(zip(meant.operands, step.operands, strict=False))
        leaves = {**reads, **{name: self._number(value) for name, value in numbers.items()}}
        found: dict[Term, Access] = {}
        inner = list(dict.fromkeys(_inside(whole)))
        for number, term in enumerate(inner, 1):
            name = f"{step.tensor}.{number}"
            self._create(name, step)
            yield self._nest(step, name, self._accesses(term, leaves, found), term)
            found[term] = _whole(name, step.rank)
        last = self._accesses(whole, leaves, found)
        yield replace(step, function=str(whole[0]), operands=last, parameters=())

    def _term(self, nest: Nest) -> tuple[Term, ...] | None:
        """What is to be computed in the place of a function that is lacking; None: it is there,
        or there is nothing. Of integers these functions are others."""
        form = elementwise_form(nest.function, len(nest.operands)) if nest.elementwise else ""
        if not form or self.arch.isa.has(form) or not all(map(self._real, nest.operands)):
            return None
        names = definition(nest.function, len(nest.operands)).operands[: len(nest.operands)]
        found = self._made_of((nest.function, *names), frozenset())
        return found if isinstance(found, tuple) else None

    def _real(self, access: Access) -> bool:
        return access.scale is not None or is_float(self.tensors[access.tensor].dtype)

    def _made_of(self, term: Term, seen: frozenset[str]) -> Term | None:
        """`term` in functions that the machine has; None: there is no such."""
        if not isinstance(term, tuple):
            return term
        name, *inner = term
        assert isinstance(name, str)
        operands = [self._made_of(each, seen) for each in inner]
        if name in seen or any(each is None for each in operands):
            return None
        if self.arch.isa.has(elementwise_form(name, len(inner))):
            return (name, *(each for each in operands if each is not None))
        meant = definition(name, len(inner))
        given = (each for each in operands if each is not None)
        known = dict(zip(meant.operands, given, strict=False))
        tried = (replaced(each, known) for each in meant.terms)
        made = (self._made_of(each, seen | {name}) for each in tried)
        return min((each for each in made if each is not None), key=self._cost, default=None)

    def _cost(self, term: Term) -> float:
        """Cycles per vector of lanes of all functions in `term`."""
        if not isinstance(term, tuple):
            return 0.0
        name, *inner = term
        form = elementwise_form(str(name), len(inner))
        return self.arch.factor(form, cost_of(form)) + sum(map(self._cost, inner))

    def _accesses(
        self, term: tuple[Term, ...], leaves: Mapping[str, Access], found: Mapping[Term, Access]
    ) -> tuple[Access, ...]:
        accesses = []
        for operand in term[1:]:
            if isinstance(operand, tuple):
                accesses.append(found[operand])
            elif isinstance(operand, str):
                accesses.append(leaves[operand])
            else:
                accesses.append(self._number(operand))
        return tuple(accesses)

    def _nest(
        self, nest: Nest, name: str, operands: tuple[Access, ...], term: tuple[Term, ...]
    ) -> Nest:
        """A step on the way to what `nest` makes."""
        return Nest(
            name, nest.dims, nest.rank, str(term[0]), operands, origin=nest.origin,
            kind=nest.kind, composite=nest.composite or nest.tensor,
        )  # fmt: skip

    def _create(self, name: str, nest: Nest) -> None:
        """A tensor of real values that lies as the result of `nest` does."""
        like = self.tensors[nest.tensor]
        order = order_of(like.shape, like.storage.strides)
        storage = Storage(name, 0, dense(like.shape, order))
        real = like.dtype if is_float(like.dtype) else temporary_type(self.arch)
        self.tensors[name] = Tensor(name, like.shape, real, storage)
        self.buffers[name] = like.elements

    def _number(self, value: float) -> Access:
        return number_access(value, temporary_type(self.arch), self.tensors, self.buffers)


def _whole(name: str, rank: int) -> Access:
    """A read of just the position that is being made."""
    return Access(name, tuple(at(axis) for axis in range(rank)))


def _inside(term: tuple[Term, ...]) -> Iterator[tuple[Term, ...]]:
    """Functions of functions in `term`, each behind what it needs."""
    for operand in term[1:]:
        if isinstance(operand, tuple):
            yield from _inside(operand)
            yield operand
