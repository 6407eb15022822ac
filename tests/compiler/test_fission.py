"""Operators as instructions that follow each other: what they are, and that they mean the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.target.loops.split import SplitInstruction, fission
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import (
    Access,
    Affine,
    Dim,
    Nest,
    NestGraph,
    Storage,
    Tensor,
    at,
    row_major,
)

NAMES = ("x", "w", "b", "f")


def sliding(kernel: tuple[int, ...], stride: int, reduce: str, late: tuple[str, ...]) -> Nest:
    """A window over the first loops of a result of 4 x 3, weighted where it adds up."""
    rank, dims = 2, (Dim("m", 4), Dim("n", 3), *(Dim(f"i{n}", k) for n, k in enumerate(kernel)))
    index = [at(0), at(1)]
    for n in range(len(kernel)):
        index[n] = Affine(((n, stride), (rank + n, 1)), 0)
    operands = [Access("x", tuple(index))]
    if reduce == "sum":
        operands.append(Access("w", tuple(at(rank + n) for n in range(len(kernel)))))
    extra = {name: Access(name, (at(1),)) for name in late}
    function = "mul" if reduce == "sum" else "move"
    return Nest(
        "y", dims, rank, function, tuple(operands), reduce,
        bias=extra.get("b"), multiplier=extra.get("f"), low=-0.5, high=1.5,
    )  # fmt: skip


def nests_of(nest: Nest, links: list[SplitInstruction]) -> Iterator[Nest]:
    """Each link as an operator of its own, `t0`, `t1`, ... between them."""
    whole = tuple(at(d) for d in range(nest.rank))
    for number, link in enumerate(links):
        accesses = []
        for index in link.reads:
            if index is None:
                accesses.append(Access(f"t{number - 1}", whole))
                continue
            access = nest.reads[index]
            if link.at is not None:
                access = replace(access, index=tuple(_at(a, nest, link.at) for a in access.index))
            accesses.append(access)
        dims, reduce, function = nest.dims[: nest.rank], None, link.function
        if link.kind != "each":
            dims, reduce, function = nest.dims, link.function, nest.function
        made = Nest(f"t{number}", dims, nest.rank, function, tuple(accesses), reduce)
        last = number == len(links) - 1
        yield replace(made, tensor="y", low=nest.low, high=nest.high) if last else made


def _at(affine: Affine, nest: Nest, position: tuple[int, ...]) -> Affine:
    """The place that is read at one position of the reduction."""
    kept = tuple((dim, factor) for dim, factor in affine.terms if dim < nest.rank)
    fixed = (factor * position[d - nest.rank] for d, factor in affine.terms if d >= nest.rank)
    return Affine(kept, affine.constant + sum(fixed))


def meaning(nests: list[Nest], shapes: dict[str, tuple[int, ...]]) -> np.ndarray:
    """What `nests` make of random numbers."""
    shapes = shapes | {nest.tensor: nest.shape for nest in nests}
    tensors = {
        name: Tensor(name, shape, "fp32", Storage(name, 0, row_major(shape)))
        for name, shape in shapes.items()
    }
    given = [name for name in shapes if name in NAMES]
    buffers = {name: tensor.elements for name, tensor in tensors.items()}
    graph = NestGraph("g", tensors, buffers, tuple(nests), tuple(given), ("y",))
    random = np.random.default_rng(0)
    return run(graph, {n: random.standard_normal(shapes[n]).astype(np.float32) for n in given})["y"]


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=2), st.integers(1, 2),
    st.sampled_from(["sum", "max", "min"]), st.sampled_from([(), ("b",), ("f",), ("b", "f")]),
    st.booleans(),
)  # fmt: skip
def test_links_one_after_another_mean_the_operator(
    kernel: list[int], stride: int, reduce: str, late: tuple[str, ...], windows: bool
) -> None:
    nest = sliding(tuple(kernel), stride, reduce, late)
    read = [4, 3]
    for n, extent in enumerate(kernel):
        read[n] = (read[n] - 1) * stride + extent
    shapes: dict[str, tuple[int, ...]] = {"x": tuple(read), "w": tuple(kernel), "b": (3,)}
    shapes["f"] = (3,)
    links = fission(nest, taps=kernel, windows=windows)
    apart = meaning(list(nests_of(nest, links)), shapes)
    np.testing.assert_allclose(apart, meaning([nest], shapes), 1e-5, 1e-5)
