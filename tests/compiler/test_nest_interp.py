"""The interpreter is the plain loop over every position, whatever the accesses and storages."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
