"""Windows in steps over an open dimension: how many there are at each length, by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from test_united import one

from archgen.check.reference import run_node
from compiler.symbolic.infer_from_samples import for_lengths
from compiler.symbolic.specialize import at_length
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import NestGraph
from compiler.tensor_ir.registers import Count, counted, fitted, share
from simmodel.isa.region import Register

HALF = Register("n/2", 1, 15, 2, 0, (("n", 1),))


def pools(*given: str) -> Callable[[Mapping[str, int]], NestGraph]:
    """Pools one behind the other over n positions."""
    names = ["x", *(f"p{number}" for number in range(len(given) - 1)), "y"]
    steps = zip(names[1:], given, names, strict=False)
    nodes = " ".join(f"{made} = MaxPool <{said}> ({read})" for made, said, read in steps)
    return one(lambda n: f"(float[1,2,{n}] x) => (float y) {{ {nodes} }}")


@pytest.mark.parametrize(
    ("given", "low", "windows", "seen"),
    [
        pytest.param(
            ["kernel_shape = [3], strides = [2], pads = [1, 1]"],
            1, ["n/2"], [30, 29, 28, 1, 5], id="a border on both sides",
        ),
        pytest.param(
            ["kernel_shape = [3], strides = [2]"],
            3, ["n-2/2"], [30, 29, 28, 3, 7], id="no border",
        ),
        pytest.param(
            ["kernel_shape = [3], strides = [2], ceil_mode = 1"],
            3, ["n-1/2"], [30, 29, 28, 3, 7], id="the last window may be cut short",
        ),
        pytest.param(
            ["kernel_shape = [3], strides = [3], dilations = [2], pads = [0, 1]"],
            5, ["n-3/3"], [30, 29, 28, 27, 5, 10], id="gaps, and three steps to the next change",
        ),
        pytest.param(
            ["kernel_shape = [2], strides = [4]"],
            2, ["n-1/4"], [30, 29, 28, 26, 2, 7], id="windows apart from each other",
        ),
        pytest.param(
            ["kernel_shape = [3], strides = [2], pads = [1, 1]",
             "kernel_shape = [3], strides = [3], pads = [1, 1]",
             "kernel_shape = [2], strides = [2], pads = [0, 1]"],
            1, ["n/2", "n/6", "n/12"], [30, 29, 28, 24, 26, 25, 18, 1, 14],
            id="three in a row are rounded once",
        ),
        pytest.param(
            ["kernel_shape = [2], strides = [2]", "kernel_shape = [2]"],
            4, ["n-1/2"], [30, 29, 28, 4, 7], id="what is in steps of one follows",
        ),
        pytest.param(
            ["kernel_shape = [16], strides = [16]"],
            16, [], [30, 29, 28, 16], id="one window at all lengths",
        ),
    ],
)  # fmt: skip
def test_windows_are_a_share_of_the_length_rounded_up(
    given: Sequence[str], low: int, windows: list[str], seen: list[int]
) -> None:
    make, looked = pools(*given), []

    def at(values: Mapping[str, int]) -> NestGraph:
        looked.append(values["n"])
        return make(values)

    graph = for_lengths(at, (Register("n", low, 30),), run_node)
    assert [register.name for register in graph.registers[1:]] == windows
    assert looked == seen
    for n in range(low, 31):
        x = np.random.default_rng(n).normal(size=(1, 2, n)).astype("f4")
        ours = run(at_length(graph, {"n": n}), {"x": x})["y"]
        np.testing.assert_array_equal(ours, run(make({"n": n}), {"x": x})["y"])


@pytest.mark.parametrize(
    ("first", "step", "low", "shares"),
    [(0, 2, 1, ["n/2"]), (1, 3, 2, ["n-1/3"]), (2, 2, 3, ["n-2/2"])],
)
def test_every_so_many_positions_are_a_share(
    first: int, step: int, low: int, shares: list[str]
) -> None:
    numbers = zip("abcd", (first, 2**31, 2, step), strict=True)
    cut = f"<{', '.join(f'int64[1] {name} = {{{number}}}' for name, number in numbers)}>"
    nodes = "p = Slice (x, a, b, c, d) y = MaxPool <kernel_shape = [3], pads = [1, 1]> (p)"
    make = one(lambda n: f"(float[1,2,{n}] x) => (float y) {cut} {{ {nodes} }}")
    graph = for_lengths(make, (Register("n", low, 30),), run_node)
    assert [register.name for register in graph.registers[1:]] == shares
    for n in range(low, 31):
        x = np.random.default_rng(n).normal(size=(1, 2, n)).astype("f4")
        ours = run(at_length(graph, {"n": n}), {"x": x})["y"]
        np.testing.assert_array_equal(ours, run(make({"n": n}), {"x": x})["y"])


def test_steps_through_what_windows_left_are_rounded_once() -> None:
    nodes = """<int64[1] a = {0}, int64[1] b = {2147483648}, int64[1] c = {2}, int64[1] d = {3}> {
      half = MaxPool <kernel_shape = [2], strides = [2], pads = [0, 1]> (x)
      sixth = Slice (half, a, b, c, d) y = Relu (sixth) }"""
    make = one(lambda n: f"(float[1,2,{n}] x) => (float y) {nodes}")
    graph = for_lengths(make, (Register("n", 1, 30),), run_node)
    assert [register.name for register in graph.registers[1:]] == ["n/2", "n/6"]
    assert graph.tensors["y"].counts == (None, None, Count(0, (("n/6", 1),)))


def test_windows_of_two_lengths_one_behind_the_other() -> None:
    def make(values: Mapping[str, int]) -> NestGraph:
        text = f"""(float[1,2,{values["n"]}] past, float[1,2,{values["m"]}] new) => (float y)
          {{ x = Concat <axis = 2> (past, new)
             y = MaxPool <kernel_shape = [2], strides = [2]> (x) }}"""
        return one(lambda _: text)({})

    graph = for_lengths(make, (Register("n", 1, 9), Register("m", 1, 4)), run_node)
    assert graph.registers[2:] == (Register("n+m-1/2", 1, 6, 2, -1, (("n", 1), ("m", 1))),)
    data = np.arange(2 * 7, dtype="f4").reshape(1, 2, 7)
    given = {"past": data[:, :, :4], "new": data[:, :, 4:]}
    made = run(at_length(graph, {"n": 4, "m": 3}), given)["y"]
    assert made.tolist() == [[[1, 3, 5], [8, 10, 12]]]


def test_a_share_of_a_share_is_one_of_the_length() -> None:
    lengths = (Register("n", 1, 30),)
    made = share(Count(3, (("n/2", 1),)), 4, (*lengths, HALF))
    assert made == Register("n+6/8", 1, 5, 8, 6, (("n", 1),))
    assert all(made.share({"n": n}) == -(-(-(-n // 2) + 3) // 4) for n in range(1, 31))
    assert share(Count(0, (("n/2", 2),)), 4, (*lengths, HALF)) is None
    assert share(Count(0, (("n", 1), ("n/2", 1))), 4, (*lengths, HALF)) is None


def test_a_number_is_a_sum_of_lengths_and_shares_where_enough_points_tell() -> None:
    registers = (Register("n", 1, 30), HALF)
    known = {(n,): 2 * n + 3 * -(-n // 2) + 1 for n in (30, 29, 28, 27)}
    assert counted(known, registers) == Count(1, (("n", 2), ("n/2", 3)))
    del known[27,]
    assert fitted(known, registers) is None
