"""Nests: the interpreter is the plain loop over every position, a printed graph parses back to
itself, and operators as instructions that follow each other mean the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_reader import read_again

from compiler.target.loops.split import SplitInstruction, fission
from compiler.tensor_ir.interpreter import run, run_nest
from compiler.tensor_ir.nest import (
    Access,
    Affine,
    Array,
    Dim,
    HostNode,
    Nest,
    NestGraph,
    Storage,
    Tensor,
    at,
    row_major,
)
from compiler.tensor_ir.text import print_graph


def slow(nest: Nest, tensors: dict[str, Array]) -> Array:
    """The sum of products of `nest`, one position at a time, in exact arithmetic."""
    result = np.zeros(nest.shape)
    for loops in itertools.product(*(range(dim.extent) for dim in nest.dims)):
        product = math.prod(
            value(access, tensors[access.tensor], loops) for access in nest.operands
        )
        result[loops[: nest.rank]] += product
    return result


def value(access: Access, tensor: Array, loops: tuple[int, ...]) -> float:
    """The real value that `access` reads at one position."""
    position = [a.constant + sum(k * loops[d] for d, k in a.terms) for a in access.index]
    if any(not 0 <= p < n for p, n in zip(position, tensor.shape, strict=True)):
        assert access.pad is not None
        return access.pad
    return (float(tensor[tuple(position)]) - access.zero) * (access.scale or 1.0)


@st.composite
def products(draw: st.DrawFn) -> tuple[Nest, dict[str, Array]]:
    """A random sum of products of integers, with windows, borders and negative steps."""
    rank = draw(st.integers(1, 3))
    dims = [Dim(f"d{i}", draw(st.integers(1, 4))) for i in range(rank + draw(st.integers(1, 2)))]
    operands, tensors = [], {}
    for name in "ab":
        index = []
        for _ in range(draw(st.integers(1, 3))):
            used = draw(st.lists(st.sampled_from(range(len(dims))), max_size=2, unique=True))
            terms = tuple((d, draw(st.integers(-2, 2).filter(bool))) for d in used)
            index.append(Affine(terms, draw(st.integers(-2, 2))))
        shape = tuple(draw(st.integers(1, 5)) for _ in index)
        tensors[name] = draw(numbers(shape))
        zero = draw(st.integers(-2, 2))
        operands.append(Access(name, tuple(index), 0.0, None, zero))
    nest = Nest("y", tuple(dims), rank, "mul", tuple(operands), "sum")
    tensors["y"] = np.zeros(nest.shape, np.float32)
    return nest, tensors


def numbers(shape: tuple[int, ...]) -> st.SearchStrategy[Array]:
    """int8 arrays of `shape`."""
    count = math.prod(shape)
    return st.lists(st.integers(-9, 9), min_size=count, max_size=count).map(
        lambda values: np.array(values, np.int8).reshape(shape)
    )


@settings(max_examples=100)
@given(products())
def test_products_are_those_of_the_plain_loops(case: tuple[Nest, dict[str, Array]]) -> None:
    nest, tensors = case
    want = slow(nest, tensors)
    run_nest(nest, tensors)
    np.testing.assert_array_equal(tensors["y"], want)


def reduction(function: str, reduce: str, **fields: object) -> Nest:
    """y[i] = reduce over j of function(x[2i + j - 1])."""
    access = Access("x", (Affine(((0, 2), (1, 1)), -1),), -math.inf)
    nest = Nest("y", (Dim("i", 3), Dim("j", 3)), 1, function, (access,), reduce)
    return Nest(**{**vars(nest), **fields})


def test_windows_read_the_pad_outside() -> None:
    tensors = {"x": np.array([1, 5, 2, 4, 3], np.float32), "y": np.zeros(3, np.float32)}
    run_nest(reduction("move", "max"), tensors)
    np.testing.assert_array_equal(tensors["y"], [5, 5, 4])


def test_reading_outside_needs_a_pad() -> None:
    nest = reduction("move", "max", operands=(Access("x", (Affine(((0, 2), (1, 1)), -1),)),))
    with pytest.raises(ValueError, match="y: reads outside x"):
        run_nest(nest, {"x": np.zeros(5, np.float32), "y": np.zeros(3, np.float32)})


def test_results_are_clipped_in_steps_then_moved_by_the_zero_point_and_saturated() -> None:
    access = Access("x", (at(0),), None, 0.5, 2)
    nest = Nest("y", (Dim("i", 4),), 1, "move", (access,), low=-3.0, scale=0.25, zero=100)
    tensors = {"x": np.array([2, 4, -20, 126], np.int8), "y": np.zeros(4, np.int8)}
    run_nest(nest, tensors)
    np.testing.assert_array_equal(tensors["y"], [100, 104, 88, 127])


def test_bias_and_multiplier_apply_to_sums() -> None:
    sums = (Access("a", (at(0), at(2)), None, None, 1), Access("b", (at(2), at(1))))
    nest = Nest(
        "y", (Dim("m", 1), Dim("n", 2), Dim("k", 3)), 2, "mul", sums, "sum",
        bias=Access("bias", (at(1),)), multiplier=Access("factor", (at(1),)), zero=-1, high=20.0,
    )  # fmt: skip
    tensors = {
        "a": np.array([[2, 3, 4]], np.int8),
        "b": np.array([[1, 10], [1, 10], [1, 10]], np.int8),
        "bias": np.array([4, -20], np.int32),
        "factor": np.array([0.5, 1.0], np.float32),
        "y": np.zeros((1, 2), np.int8),
    }
    run_nest(nest, tensors)
    np.testing.assert_array_equal(tensors["y"], [[4, 19]])  # (6 + 4) / 2 - 1; min(40, 20) - 1


def tensor(name: str, shape: tuple[int, ...], dtype: str = "fp32") -> Tensor:
    """A dense tensor in a buffer of its own."""
    return Tensor(name, shape, dtype, Storage(name, 0, row_major(shape)))


def test_views_alias_their_buffer_and_ports_convert() -> None:
    column = Tensor("column", (2,), "fp32", Storage("y", 1, (3,)))
    writes = Nest("column", (Dim("i", 2),), 1, "neg", (Access("x", (at(0),)),))
    tensors = {t.name: t for t in (tensor("x", (2,)), tensor("y", (2, 3)), column)}
    graph = NestGraph(
        "g", tensors, {"x": 2, "y": 6}, (writes,), ("x",), ("y",), {"x": "fp64", "y": "fp64"}
    )
    got = run(graph, {"x": np.array([7.0, 8.0])})
    assert got["y"].dtype == np.float64
    np.testing.assert_array_equal(got["y"], [[0, -7, 0], [0, -8, 0]])


def test_host_nodes_go_through_the_host() -> None:
    tensors = {name: tensor(name, (2,), "int32") for name in "xy"}
    node = HostNode(("x",), ("y",), b"double", "n", "Double", "no nest")
    graph = NestGraph("g", tensors, {"x": 2, "y": 2}, (node,), ("x",), ("y",))
    x = np.array([1, 2], np.int32)
    got = run(graph, {"x": x}, lambda payload, arrays: [arrays[0] * 2] if payload else [])
    np.testing.assert_array_equal(got["y"], [2, 4])
    with pytest.raises(ValueError, match="none is given"):
        run(graph, {"x": x})
    with pytest.raises(ValueError, match="input x needs an array of"):
        run(graph, {"x": x[:1]}, lambda _, arrays: arrays)


names = st.one_of(
    st.sampled_from(
        ["x", "conv_1.out", "/block.0/Add_output_0", "input", "of", 'a "b"', "é\n", ""]
    ),
    st.text(max_size=6),
)
floats = st.one_of(st.sampled_from([math.inf, -math.inf, 0.1, 1e-30]), st.floats(allow_nan=False))
small = st.integers(-9, 9)


@st.composite
def nests(draw: st.DrawFn) -> Nest:
    """Any nest at all; what it says need not make sense."""
    loops = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    dims = tuple(Dim(name, draw(st.integers(1, 99))) for name in loops)
    terms = st.lists(st.tuples(st.integers(0, len(dims) - 1), small), max_size=3).map(tuple)
    indices = st.lists(st.builds(Affine, terms, small), max_size=3).map(tuple)
    optional = st.one_of(st.none(), floats)
    accesses = st.builds(Access, names, indices, optional, optional, small)
    limits = st.one_of(st.just((-math.inf, math.inf)), st.tuples(floats, floats))
    low, high = draw(limits)
    reduce = draw(st.sampled_from([None, "sum", "max"]))
    return Nest(
        tensor=draw(names), dims=dims,
        rank=len(dims) if reduce is None else draw(st.integers(0, len(dims))),
        function=draw(st.sampled_from(["mul", "move", "not"])),
        operands=tuple(draw(st.lists(accesses, min_size=1, max_size=3))),
        reduce=reduce, parameters=tuple(draw(st.lists(floats, max_size=2))),
        bias=draw(st.one_of(st.none(), accesses)), multiplier=draw(st.one_of(st.none(), accesses)),
        low=low, high=high, scale=draw(optional), zero=draw(small), origin=draw(names),
        kind=draw(names), composite=draw(st.one_of(st.none(), names)),
    )  # fmt: skip


@st.composite
def graphs(draw: st.DrawFn) -> NestGraph:
    """A graph of unrelated parts."""
    known = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    tensors = {}
    for name in known:
        shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
        storage = Storage(draw(st.sampled_from(known)), draw(small), shape)
        data = np.zeros(shape, np.int8) if draw(st.booleans()) else None
        tensors[name] = Tensor(name, shape, "int8", storage, data)
    outputs = st.lists(names, min_size=1, max_size=2).map(tuple)
    hosts = st.builds(
        HostNode, outputs, outputs, st.just(b"model"), names, names, names, st.integers(0, 9)
    )
    ports = {name: "fp32" for name in known if draw(st.booleans())}
    return NestGraph(
        draw(names),
        tensors,
        {name: draw(st.integers(0, 99)) for name in known},
        tuple(draw(st.lists(st.one_of(nests(), hosts), max_size=3))),
        tuple(known[:1]),
        tuple(known[1:]),
        ports,
    )


@settings(max_examples=60)
@given(graphs())
def test_round_trip(graph: NestGraph) -> None:
    parsed = read_again(graph)
    assert parsed == graph
    constants = [{n for n, t in g.tensors.items() if t.data is not None} for g in (graph, parsed)]
    assert constants[0] == constants[1]
    assert print_graph(parsed) == print_graph(graph)


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
