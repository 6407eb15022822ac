"""One graph of nests for many lengths computes at each what the graph made for that length does; of
windows in steps there are as many as by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import pytest
from one_node import lowered
from onnx import numpy_helper

from archgen.check.reference import run_node, sample_inputs
from archgen.schema import load_arch
from archgen.zoo.catalog import build
from compiler.context import CompileOptions, Context
from compiler.errors import UnsupportedModel
from compiler.pipeline import nests, prepared
from compiler.symbolic.infer_from_samples import for_lengths
from compiler.symbolic.specialize import at_length
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.join import JoinConcat
from compiler.tensor_ir.nest import ZERO, Access, Nest, NestGraph, Storage
from compiler.tensor_ir.registers import Count, counted, fitted, share
from simmodel.isa.region import Register

MACHINE = load_arch("stcp920")
BERT = {"layers": 1, "hidden": 16, "heads": 2, "vocabulary": 20}
GPT = {"layers": 1, "hidden": 16, "heads": 2, "vocabulary": 20, "positions": 32}

Model = Callable[[Mapping[str, int]], onnx.ModelProto]


def zoo(name: str, options: Mapping[str, float]) -> Model:
    return lambda values: build(name, **{**options, **values})


def made(model: Model) -> Callable[[Mapping[str, int]], NestGraph]:
    def make(values: Mapping[str, int]) -> NestGraph:
        network = prepared(model(values), "network")
        return nests(network, Context(MACHINE, CompileOptions(dtype="fp16")))

    return make


@pytest.mark.parametrize(
    ("model", "registers", "points"),
    [
        pytest.param(
            zoo("bert_base", BERT),
            (Register("batch", 1, 3), Register("sequence", 1, 12)),
            [(2, 7)],
            id="batch and sequence, and both in one index",
        ),
        pytest.param(
            zoo("gpt2", GPT), (Register("sequence", 2, 16),), [(5,)], id="a prompt's last token"
        ),
    ],
)
def test_a_graph_for_all_lengths_computes_what_one_for_each_does(
    model: Model, registers: tuple[Register, ...], points: list[tuple[int, ...]]
) -> None:
    make = made(model)
    graph = for_lengths(make, registers, run_node)
    assert graph.registers == registers
    for point in points:
        values = {r.name: value for r, value in zip(registers, point, strict=True)}
        cut, own = at_length(graph, values), make(values)
        inputs = sample_inputs(model(values))
        ours, right = run(cut, inputs, run_node), run(own, inputs, run_node)
        for name, expected in right.items():
            assert ours[name].shape == expected.shape
            np.testing.assert_allclose(ours[name], expected, atol=4e-2 * np.abs(expected).max())


# What numbers become.


def one(
    text: Callable[[int], str],
    constants: Callable[[int], dict[str, np.ndarray]] = lambda n: {},  # type: ignore[type-arg]
) -> Callable[[Mapping[str, int]], NestGraph]:
    """A network that gives `y`, at length n; types of what it makes are inferred."""

    def make(values: Mapping[str, int]) -> NestGraph:
        n = values.get("n", 0)
        proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> net {text(n)}')
        weights = [numpy_helper.from_array(a, name) for name, a in constants(n).items()]
        proto.graph.initializer.extend(weights)
        proto.graph.output[0].ClearField("type")
        return JoinConcat().apply(lowered(onnx.shape_inference.infer_shapes(proto))).ir

    return make


LENGTH = (Register("n", 1, 8),)


def test_a_cache_grows_at_a_place_that_moves_in_the_layout_of_the_edge() -> None:
    make = one(
        lambda n: (
            f"""(float[2,{n},4] past, float[2,1,4] new) => (float y)
        {{ r = Relu (new) y = Concat <axis = 1> (past, r) }}"""
        )
    )
    graph = for_lengths(make, LENGTH, run_node)
    count = Count(1, (("n", 1),))
    assert graph.tensors["y"].counts == (None, count, None)
    row = graph.tensors["r"].storage
    assert (row.offset, row.strides, row.registers) == (8 * 4, (36, 1, 1), (("n", 4),))
    cut = at_length(graph, {"n": 3})
    assert cut.tensors["y"].storage.strides == (36, 4, 1)
    inputs = {"past": np.ones((2, 3, 4), "f4"), "new": np.full((2, 1, 4), 2, "f4")}
    np.testing.assert_array_equal(run(cut, inputs)["y"][:, :, 0], [[1, 1, 1, 2]] * 2)


def test_constants_that_begin_alike_are_those_of_the_edge() -> None:
    mask = np.tri(8, dtype="f4")
    make = one(
        lambda n: f"(float[{n},{n}] x) => (float y) {{ y = Mul (x, mask) }}",
        lambda n: {"mask": mask[:n, :n].copy()},
    )
    cut = at_length(for_lengths(make, LENGTH, run_node), {"n": 3})
    np.testing.assert_array_equal(run(cut, {"x": np.ones((3, 3), "f4")})["y"], mask[:3, :3])


def test_a_constant_is_the_beginning_of_one_beyond_the_range() -> None:
    make = one(
        lambda n: f"(float[{n}] x) => (float y) {{ y = Mul ({'x, c' if n >= 8 else 'c, x'}) }}",
        lambda n: {"c": np.arange(n, dtype="f4")},
    )
    cut = at_length(for_lengths(make, LENGTH, run_node), {"n": 3})
    assert run(cut, {"x": np.ones(3, "f4")})["y"].tolist() == [0, 1, 2]


def test_constants_of_one_length_each_are_rows_of_a_table() -> None:
    def rows(n: int) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
        return {"c": np.full((1, 3), n, "f4")}

    nodes = "r = Mul (new, c) y = Concat <axis = 0> (past, r)"
    make = one(lambda n: f"(float[{n},3] past, float[1,3] new) => (float y) {{ {nodes} }}", rows)
    with pytest.raises(UnsupportedModel, match="c has other values for another n, not just fewer"):
        for_lengths(make, LENGTH, run_node)
    graph = for_lengths(make, LENGTH, run_node, lambda names, values: rows(values["n"]))
    assert graph.tensors["c"].storage == Storage("c@n", 7 * 3, (3, 1), (("n", 3),))
    inputs = {"past": np.zeros((5, 3), "f4"), "new": np.ones((1, 3), "f4")}
    np.testing.assert_array_equal(run(at_length(graph, {"n": 5}), inputs)["y"][-1], [5, 5, 5])


def test_rows_of_a_table_may_be_shorter_and_of_two_lengths() -> None:
    def mask(n: int, past: int) -> np.ndarray:  # type: ignore[type-arg]
        return np.tri(n, past + n, past, dtype="f4")

    def make(values: Mapping[str, int]) -> NestGraph:
        n, past = values["n"], values["past"]
        text = f"(float[{n},{past + n}] x) => (float y) {{ y = Mul (x, c) }}"
        return one(lambda _: text, lambda _: {"c": mask(n, past)})(values)

    registers = (Register("n", 1, 4), Register("past", 1, 6))
    graph = for_lengths(make, registers, run_node, lambda _, at: {"c": mask(at["n"], at["past"])})
    assert graph.tensors["c"].storage == Storage("c@past", 5 * 40, (10, 1), (("past", 40),))
    x = np.ones((3, 5), "f4")
    made = run(at_length(graph, {"n": 3, "past": 2}), {"x": x})["y"]
    np.testing.assert_array_equal(made, mask(3, 2))

    def powers(n: int, past: int) -> np.ndarray:  # type: ignore[type-arg]
        return np.full((2,), n**past, "f4")

    def scaled(values: Mapping[str, int]) -> NestGraph:
        data = powers(values["n"], values["past"])
        text = "(float[2] x) => (float y) { y = Mul (x, c) }"
        return one(lambda _: text, lambda _: {"c": data})(values)

    graph = for_lengths(
        scaled, registers, run_node, lambda _, at: {"c": powers(at["n"], at["past"])}
    )
    assert graph.tensors["c"].storage.registers == (("n", 12), ("past", 2))
    made = run(at_length(graph, {"n": 3, "past": 2}), {"x": np.ones(2, "f4")})["y"]
    assert made.tolist() == [9, 9]


def test_a_mean_is_that_of_the_edge_times_how_many_times_fewer_there_are() -> None:
    make = one(
        lambda n: (
            f"""(float[{n},{2 * n},3] x) => (float y)
        {{ y = ReduceMean <axes = [0, 1], keepdims = 0> (x) }}"""
        )
    )
    graph = for_lengths(make, LENGTH, run_node)
    (mean,) = (step for step in graph.steps if isinstance(step, Nest))
    assert mean.operands[0].scale == 1 / (8 * 16)
    assert mean.multiplier == Access("y.kept.share", (ZERO,))
    assert graph.tensors["y.kept.share"].storage == Storage("y.kept.share@n", 7, (1,), (("n", 1),))
    table = graph.tensors["y.kept.share@n"].data
    assert table is not None
    assert table[[7, 3, 0], 0].tolist() == [1, 4, 64]
    x = np.arange(3 * 6 * 3, dtype="f4").reshape(3, 6, 3)
    made = run(at_length(graph, {"n": 3}), {"x": x})["y"]
    np.testing.assert_allclose(made, x.mean((0, 1)), rtol=1e-6)


def test_a_mean_over_two_lengths_has_a_table_with_both() -> None:
    def make(values: Mapping[str, int]) -> NestGraph:
        n, m = values["n"], values["m"]
        text = f"(float[{n},{m}] x) => (float y) {{ y = ReduceMean <axes = [0, 1]> (x) }}"
        return one(lambda _: text)({})

    graph = for_lengths(make, (*LENGTH, Register("m", 2, 5)), run_node)
    assert graph.tensors["y.share"].storage.registers == (("n", 4), ("m", 1))
    x = np.arange(3 * 4, dtype="f4").reshape(3, 4)
    made = run(at_length(graph, {"n": 3, "m": 4}), {"x": x})["y"]
    np.testing.assert_allclose(made, [[5.5]], rtol=1e-6)


def test_a_border_moves_with_the_end_and_lies_where_windows_read_it() -> None:
    make = one(
        lambda n: (
            f"""(float[1,1,{n},4] x) => (float y)
        {{ e = Exp (x) y = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (e) }}"""
        )
    )
    graph = for_lengths(make, LENGTH, run_node)
    inside, rows = (graph.tensors[name].storage for name in ("e", "e.bordered:-inf.after2"))
    assert (inside.buffer, inside.offset, inside.registers) == ("e.bordered:-inf", 4, ())
    assert (rows.buffer, rows.offset, rows.registers) == ("e.bordered:-inf", 9 * 4, (("n", 4),))
    (pool,) = (step for step in graph.steps if isinstance(step, Nest) and step.tensor == "y")
    assert [a.constant for a in pool.operands[0].index] == [0, 0, 0, -1]
    x = np.random.default_rng(0).normal(size=(1, 1, 3, 4)).astype("f4")
    made = run(at_length(graph, {"n": 3}), {"x": x})["y"]
    np.testing.assert_array_equal(made, run(make({"n": 3}), {"x": x})["y"])


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
