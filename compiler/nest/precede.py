"""What must be over before a product can be done with any of its weights.

    a -> conv1 -> x -> conv2 -> y    conv2 is done with the weights of an input channel when it
                                     has used all of that channel of x: conv1 has read all of a

The one idea: what a nest reads is followed backwards as one product of positions for each tensor,
which may be less than what is needed, never more; where it is all of a tensor, all that comes
before that is known.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from compiler.nest.demand import Demanded, Sets, needed
from compiler.nest.ir import Nest, NestGraph, Tensor

Shares = NDArray[np.float64]
"""By step, how much of its work is over, 0 to 1."""


class Precedence:
    """The steps of one network."""

    def __init__(self, graph: NestGraph, least: Demanded) -> None:
        self.graph = graph
        self._least = least
        self._makers: dict[str, list[str]] = defaultdict(list)
        """Buffer -> what the steps make in it."""
        for step in graph.steps:
            for name in (step.tensor,) if isinstance(step, Nest) else step.outputs:
                self._makers[graph.tensors[name].storage.buffer].append(name)
        self._whole: list[Shares] = []
        for number in range(len(graph.steps)):
            self._whole.append(self._all_of(number))

    def before(self, number: int) -> Shares:
        """What is over when product `number` of the steps can be done with some element of its
        weights."""
        nest = self.graph.steps[number]
        assert isinstance(nest, Nest)
        # Of the positions of a kernel those at its ends read least: the rest falls in the border.
        first, last = (self._before(number, _one(nest, end)) for end in (0, -1))
        return np.minimum(first, last)

    def _all_of(self, number: int) -> Shares:
        step = self.graph.steps[number]
        if isinstance(step, Nest) and self._least.results[step.tensor] < math.prod(step.shape):
            return np.zeros(len(self.graph.steps))  # nobody needs all of it
        shares = self._before(number, _all(step) if isinstance(step, Nest) else ())
        shares[number] = 1.0
        return shares

    def _before(self, number: int, loops: Sets) -> Shares:
        """What comes before step `number` takes on these positions of its loops."""
        found = np.zeros(len(self.graph.steps))
        wanted: dict[str, Sets] = {}
        self._read(number, loops, wanted)
        for at in range(number - 1, -1, -1):
            step = self.graph.steps[at]
            if not isinstance(step, Nest):
                if not wanted.keys().isdisjoint(step.outputs):
                    found = np.maximum(found, self._whole[at])
                continue
            sets = wanted.get(step.tensor)
            if sets is None:
                continue
            share = math.prod(map(len, sets)) / math.prod(step.shape)
            if share >= 1:
                found = np.maximum(found, self._whole[at])
                continue
            found[at] = share
            inner = (np.arange(dim.extent) for dim in step.dims[step.rank :])
            self._read(at, (*sets, *inner), wanted)
        return found

    def _read(self, number: int, loops: Sets, wanted: dict[str, Sets]) -> None:
        """Add to `wanted` what step `number` reads while its loops take on these positions."""
        step, tensors = self.graph.steps[number], self.graph.tensors
        if not isinstance(step, Nest):
            for name in step.inputs:
                self._want(tensors[name], _whole(tensors[name]), wanted)
            return
        for access in step.reads:
            source = tensors[access.tensor]
            if source.storage.buffer in self._makers:
                self._want(source, needed(access, loops, source.shape), wanted)

    def _want(self, tensor: Tensor, sets: Sets, wanted: dict[str, Sets]) -> None:
        """Add positions of `tensor` to what is `wanted` of whoever makes it, where it is plain
        which these are."""
        makers = self._makers.get(tensor.storage.buffer, [])
        if tensor.name in makers:
            _more(tensor.name, sets, wanted)
            return
        full = math.prod(map(len, sets)) == tensor.elements == self.graph.buffers[
            tensor.storage.buffer
        ]  # fmt: skip
        for name in makers:
            made = self.graph.tensors[name]
            if full:
                _more(name, _whole(made), wanted)
            elif _moving(made) == _moving(tensor):
                seen = iter([s for s, n in zip(sets, tensor.shape, strict=True) if n > 1])
                only = np.arange(1)
                _more(name, tuple(next(seen) if n > 1 else only for n in made.shape), wanted)


def _more(name: str, sets: Sets, wanted: dict[str, Sets]) -> None:
    """The larger of two products of positions stands for both."""
    if name not in wanted or math.prod(map(len, sets)) > math.prod(map(len, wanted[name])):
        wanted[name] = sets


def _moving(tensor: Tensor) -> tuple[int, list[tuple[int, int]]]:
    """Where a tensor lies, without dimensions of one position."""
    pairs = zip(tensor.shape, tensor.storage.strides, strict=True)
    return tensor.storage.offset, [pair for pair in pairs if pair[0] > 1]


def _whole(tensor: Tensor) -> Sets:
    return tuple(np.arange(extent) for extent in tensor.shape)


def _all(nest: Nest) -> Sets:
    return tuple(np.arange(dim.extent) for dim in nest.dims)


def _one(nest: Nest, end: int) -> Sets:
    """The loops of a product with one position of those that its weights move along."""
    weights = nest.operands[1]
    return tuple(
        every[[end]] if weights.uses(dim) else every for dim, every in enumerate(_all(nest))
    )
