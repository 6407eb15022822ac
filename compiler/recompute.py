"""What the nests make of a program's own stored values, so that what stays on chip is seen too.

The one idea: a step's nests are computed again from what the program had in DRAM when the step
began. That gives every value inside the step, and what the step should have stored; the next step
starts from what the program did store, so differences cannot add up over steps.

Integers come out equal, bit for bit. Sums of floats depend on the order in which they are added
up, so such nests are computed twice, the second time in fp64: how far both are apart at the end of
a step is what the order may change there, roundings to shorter types on the way included. As these
are rare, the second time the largest value of every such tensor is one unit off.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from compiler.nest.interp import views
from compiler.nest.ir import Array, Nest, NestGraph
from compiler.nest.memo import Memo
from simmodel.dtype import NUMPY

Known = Mapping[str, Sequence[tuple[str, str]]]
"""Tensor -> (name, element type) of each value of the model that it holds."""


@dataclass(frozen=True)
class Stage:
    """A step of the program: nests, or what the host made, and what it leaves in DRAM."""

    nests: tuple[Nest, ...]
    """None of them for a step of the host."""
    stored: tuple[str, ...]
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Element types on chip of what is not stored; default as in memory."""

    @property
    def made(self) -> tuple[str, ...]:
        """Every tensor that it computes."""
        return tuple(nest.tensor for nest in self.nests) or self.stored


@dataclass(frozen=True)
class Recipe:
    """What a program computes step by step."""

    graph: NestGraph
    stages: tuple[Stage, ...]
    known: Known


@dataclass(frozen=True)
class Stored:
    """One tensor that a step stored, and what its nests make of the step's inputs."""

    name: str
    actual: Array
    expected: Array
    other: Array | None
    """As `expected`, with sums in fp64; None where no order of additions plays a role."""
    products: int
    """Products added up for one element, at worst, since a value was stored."""


@dataclass(frozen=True)
class Recomputed:
    """All values of a program."""

    fed: dict[str, Array]
    """By their names in the model: as stored, or recomputed where they stay on chip. The readers
    of a value were given these."""
    made: dict[str, Array]
    """The same values as recomputed, stored ones too: what each operator made of what it read."""
    stored: tuple[Stored, ...]


def recompute(
    recipe: Recipe,
    inputs: Mapping[str, Array],
    stored: Mapping[str, Array],
    memo: Memo | None = None,
) -> Recomputed:
    """All values that the model names, and each stored tensor beside what it should be.

    Args:
        recipe: the program's steps.
        inputs: the network's inputs by name, in their shapes.
        stored: every tensor that a step stores, raw, by name.
        memo: where results of nests are kept from call to call.
    """
    memo = memo or Memo()
    tensors, remade = _tensors(recipe), views(recipe.graph)
    for name in recipe.graph.inputs:
        tensors[name][...] = inputs[name]
    found = Recomputed({}, {}, ())
    pairs: list[Stored] = []
    for stage, names in zip(recipe.stages, _seen(recipe), strict=True):
        pairs += (judged := tuple(_judged(recipe, stage, tensors, stored, memo)))
        for name in stage.stored:
            tensors[name][...] = remade[name][...] = stored[name]
        for pair in judged:
            remade[pair.name][...] = pair.expected
        inside = set(stage.made) - set(stage.stored)
        for name in inside:
            remade[name][...] = tensors[name]
        for name in names:
            for known, dtype in recipe.known[name]:
                found.fed[known] = tensors[name].astype(NUMPY[dtype])
                alike = name in inside
                found.made[known] = found.fed[known] if alike else remade[name].astype(NUMPY[dtype])
    return replace(found, stored=tuple(pairs))


def _tensors(recipe: Recipe) -> dict[str, Array]:
    """Arrays for all tensors: views of shared buffers, or wider where a step keeps them so."""
    tensors = views(recipe.graph)
    for stage in recipe.stages:
        for name, kind in stage.kinds.items():
            if NUMPY[kind] != tensors[name].dtype:
                tensors[name] = np.zeros(tensors[name].shape, NUMPY[kind])
    return tensors


def _judged(
    recipe: Recipe,
    stage: Stage,
    tensors: Mapping[str, Array],
    stored: Mapping[str, Array],
    memo: Memo,
) -> Iterator[Stored]:
    """Compute the nests of `stage` into `tensors`; what it should have stored.

    What it did store takes the place of that at once: operators behind it start from there.
    """
    history = _histories(recipe, stage, tensors)
    other: dict[str, Array] = {}
    if any(history[name].inexact for name in stage.stored if stage.nests):
        for nest in stage.nests:
            memo.run(nest, tensors, fine=_adds_floats(nest, tensors))
            if nest.tensor in stage.stored:
                other[nest.tensor] = _replaced(tensors[nest.tensor], stored[nest.tensor])
            elif history[nest.tensor].inexact:
                _disturb(tensors[nest.tensor])
    for nest in stage.nests:
        memo.run(nest, tensors)
        name = nest.tensor
        if name in stage.stored:
            expected = _replaced(tensors[name], stored[name])
            before = history[name]
            second = other[name] if before.inexact else None
            yield Stored(name, stored[name], expected, second, before.products)


def _replaced(values: Array, new: Array) -> Array:
    """A copy of `values`, which become `new`."""
    old = values.copy()
    values[...] = new
    return old


@dataclass(frozen=True)
class _History:
    """What happened to a value since the step began, or since a value on the way was stored."""

    inexact: bool = False
    """Whether the order of additions can change it."""
    products: int = 1
    """Products added up for one element, at worst."""


def _histories(recipe: Recipe, stage: Stage, tensors: Mapping[str, Array]) -> dict[str, _History]:
    """Of each tensor that `stage` makes. It may be read by other names: buffers tell them."""
    found: dict[str, _History] = {}
    held: dict[str, _History] = {}
    for nest in stage.nests:
        buffers = [recipe.graph.tensors[a.tensor].storage.buffer for a in nest.reads]
        before = [held[buffer] for buffer in buffers if buffer in held]
        own = nest.macs // max(1, math.prod(nest.shape))
        made = _History(
            _adds_floats(nest, tensors) or any(each.inexact for each in before),
            max(1, own, *(each.products for each in before)),
        )
        found[nest.tensor] = made
        if nest.tensor in stage.stored:
            continue
        buffer = recipe.graph.tensors[nest.tensor].storage.buffer
        beside = held.get(buffer, _History())
        products = max(made.products, beside.products)
        held[buffer] = _History(made.inexact or beside.inexact, products)
    return found


def _adds_floats(nest: Nest, tensors: Mapping[str, Array]) -> bool:
    if nest.reduce not in ("sum", "prod"):
        return False
    integers = all(tensors[access.tensor].dtype.kind in "biu" for access in nest.operands)
    return not (integers and nest.function == "mul" and nest.reduce == "sum")


def _disturb(values: Array) -> None:
    """Move the largest of `values` by one unit in the last place towards 0."""
    if values.size == 0 or values.dtype.kind == "b":
        return
    sizes = np.abs(values.astype(np.float32))
    where = np.unravel_index(int(np.argmax(sizes)), values.shape)
    if values.dtype.kind in "iu":
        values[where] -= np.sign(values[where])
    else:
        values[where] = np.nextafter(values[where], values.dtype.type(0))


def _seen(recipe: Recipe) -> list[list[str]]:
    """For each stage the tensors to look at when it has ended: what it made, as far as the model
    names it; and where a part of a buffer is no value of the model, one that covers the buffer."""
    tensors = recipe.graph.tensors
    seen = [[name for name in stage.made if recipe.known.get(name)] for stage in recipe.stages]
    last: dict[str, int] = {}
    missing: set[str] = set()
    for number, stage in enumerate(recipe.stages):
        for name in stage.made:
            buffer = tensors[name].storage.buffer
            last[buffer] = number
            missing.update(() if recipe.known.get(name) else (buffer,))
    for name, values in recipe.known.items():
        if values and name in tensors and _covers(recipe.graph, name, missing):
            buffer = tensors[name].storage.buffer
            missing.remove(buffer)
            seen[last[buffer]].append(name)
    return seen


def _covers(graph: NestGraph, name: str, buffers: Collection[str]) -> bool:
    tensor = graph.tensors[name]
    buffer = tensor.storage.buffer
    if buffer not in buffers or min(tensor.storage.strides, default=1) <= 0:
        return False
    return tensor.elements == graph.buffers[buffer]
