"""Joined concatenations compute the same, and copies go where they can; so do joined calls of the
host, in fewer calls.

A case is `tests/cases/join-concat/<name>.txt`: a nest graph, a line `----`, and what the pass makes
of it. `UPDATE_CASES=1 pytest tests/compiler/test_nest_join_concat.py` rewrites the second half.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_reader import check_case, parse_graph
from networks import cleaned, model
from onnx import helper

from compiler.frontend.importer import load
from compiler.lowering.lower import lower
from compiler.passes import run_pass
from compiler.tensor_ir.build import NestGraphBuilder
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.join import JoinConcat, JoinHost, Placing, side_by_side
from compiler.tensor_ir.nest import Array, HostNode, NestGraph, Storage, Tensor, row_major
from compiler.tensor_ir.text import print_graph

FILES = sorted((Path(__file__).parents[1] / "cases/join-concat").glob("*.txt"))


def inputs_of(graph: NestGraph) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    return {n: rng.standard_normal(graph.tensors[n].shape).astype("f4") for n in graph.inputs}


def joined(graph: NestGraph) -> NestGraph:
    """`graph` after the pass, which has to compute the same."""
    result = run_pass(JoinConcat(), graph)
    assert result.changed == (len(result.ir.steps) < len(graph.steps))
    inputs = inputs_of(graph)
    before, after = run(graph, inputs), run(result.ir, inputs)
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values, err_msg=name)
    assert not run_pass(JoinConcat(), result.ir).changed
    return result.ir


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cases(path: Path) -> None:
    check_case(path, lambda before: print_graph(joined(parse_graph(before))))


def lowered(
    nodes: list[onnx.NodeProto], outputs: list[str], weights: dict[str, Array]
) -> NestGraph:
    proto = model(nodes, {"x": [1, 4, 3, 2]}, dict.fromkeys(outputs), weights, opset=21)
    return lower(cleaned(load(proto, "g")), "fp32")


def copies(graph: NestGraph) -> int:
    return sum(step.kind == "Concat" for step in graph.steps)


def dense_block(layers: int, hand_on: bool) -> NestGraph:
    """Each layer sees all earlier features: joined anew, or the last joint handed on."""
    weights, nodes, features, last = {}, [], ["x0"], "x0"
    nodes.append(helper.make_node("Abs", ["x"], ["x0"]))
    for i in range(1, layers + 1):
        weights[f"w{i}"] = np.ones((2, 4 + 2 * (i - 1), 1, 1), np.float32)
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"x{i}"]))
        features.append(f"x{i}")
        parts = [last, f"x{i}"] if hand_on else features
        nodes.append(helper.make_node("Concat", parts, [f"c{i}"], axis=1))
        last = f"c{i}"
    nodes.append(helper.make_node("Neg", [last], ["y"]))
    return lowered(nodes, ["y"], weights)


@pytest.mark.parametrize("hand_on", [True, False])
def test_dense_blocks_need_no_copies(hand_on: bool) -> None:
    graph = dense_block(4, hand_on)
    assert copies(graph) >= 8
    after = joined(graph)
    assert copies(after) == 0
    assert {after.tensors[f"x{i}"].storage.buffer for i in range(5)} == {"c4"}


@pytest.mark.parametrize(("channels", "strides"), [(3, (36, 6, 2, 1)), (9, (108, 1, 36, 18))])
def test_a_joint_of_a_few_channels_lies_in_planes(channels: int, strides: tuple[int, ...]) -> None:
    """Of each pixel, a part with few channels would write as many elements."""
    weights = {"w": np.ones((channels, 4, 1, 1), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Conv", ["x", "w"], ["b"]),
        helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
    ]
    assert lowered(nodes, ["c"], weights).tensors["c"].has_strides(strides)


@st.composite
def networks(draw: st.DrawFn) -> NestGraph:
    """Random chains of concatenations, slices, reshapes and arithmetic."""
    shapes: dict[str, tuple[int, ...]] = {"x": (1, 4, 3, 2)}
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, Array] = {}

    def integers(name: str, values: list[int]) -> str:
        weights[name] = np.array(values, np.int64)
        return name

    for i in range(draw(st.integers(2, 9))):
        name = f"v{i}"
        source = draw(st.sampled_from(list(shapes)))
        shape = shapes[source]
        kind = draw(
            st.sampled_from(["Concat"] * 3 + ["Neg", "Conv", "Slice", "Reshape", "Transpose"])
        )
        if kind == "Concat":
            axis = draw(st.integers(0, len(shape) - 1))
            rest = [n for n in shapes if fits(shapes[n], shape, axis)]
            parts = [source, *draw(st.lists(st.sampled_from(rest), min_size=1, max_size=2))]
            nodes.append(helper.make_node("Concat", parts, [name], axis=axis))
            total = sum(shapes[p][axis] for p in parts)
            shapes[name] = (*shape[:axis], total, *shape[axis + 1 :])
        elif kind == "Conv" and len(shape) == 4:
            weights[f"{name}.w"] = np.ones((2, shape[1], 1, 1), np.float32)
            nodes.append(helper.make_node("Conv", [source, f"{name}.w"], [name]))
            shapes[name] = (shape[0], 2, *shape[2:])
        elif kind == "Slice" and shape[-1] > 1:
            start = draw(st.integers(0, shape[-1] - 1))
            bounds = [integers(f"{name}.{k}", [v]) for k, v in
                      (("start", start), ("end", shape[-1]), ("axis", -1))]  # fmt: skip
            nodes.append(helper.make_node("Slice", [source, *bounds], [name]))
            shapes[name] = (*shape[:-1], shape[-1] - start)
        elif kind == "Reshape":
            new = draw(st.sampled_from([(*shape[:-2], shape[-2] * shape[-1]), (*shape, 1)]))
            to = integers(f"{name}.shape", list(new))
            nodes.append(helper.make_node("Reshape", [source, to], [name]))
            shapes[name] = new
        elif kind == "Transpose":
            nodes.append(helper.make_node("Transpose", [source], [name]))
            shapes[name] = shape[::-1]
        else:
            nodes.append(helper.make_node("Neg", [source], [name]))
            shapes[name] = shape
    made = [node.output[0] for node in nodes]
    outputs = draw(st.lists(st.sampled_from(made), max_size=2, unique=True))
    return lowered(nodes, list({*outputs, made[-1]}), weights)


def fits(a: tuple[int, ...], b: tuple[int, ...], axis: int) -> bool:
    """Whether tensors of shapes `a` and `b` can be joined along `axis`."""
    return len(a) == len(b) and all(
        m == n for i, (m, n) in enumerate(zip(a, b, strict=True)) if i != axis
    )


@settings(max_examples=80)
@given(networks())
def test_random_networks_compute_the_same(graph: NestGraph) -> None:
    joined(graph)


@settings(max_examples=200)
@given(st.data())
def test_placing_moves_every_element_with_its_buffer(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    order = data.draw(st.permutations(range(len(shape))))
    packed = row_major(tuple(shape[a] for a in order))
    old = tuple(packed[order.index(a)] for a in range(len(shape)))
    size = int(np.prod(shape))
    gap = data.draw(st.integers(0, 2))
    new = row_major((9, *(n + gap for n in shape)))[1:]
    cover = Tensor("cover", shape, "int32", Storage("a", 0, old))
    placing = Placing.of(cover, size, Storage("b", 5, new))
    assert placing is not None
    view = data.draw(views(size))
    placed = placing.apply(view)
    if placed is None:
        return
    a, b = np.arange(size), np.full(1000, -1)
    strided(b, shape, Storage("b", 5, new))[...] = strided(a, shape, cover.storage)
    np.testing.assert_array_equal(
        strided(b, view.shape, placed.storage), strided(a, view.shape, view.storage)
    )


@st.composite
def views(draw: st.DrawFn, size: int) -> Tensor:
    """A view of a buffer of `size` elements."""
    shape, strides, offset = [], [], draw(st.integers(0, size - 1))
    room = size - 1 - offset
    for _ in range(draw(st.integers(0, 2))):
        stride = draw(st.integers(0, max(1, room)))
        extent = draw(st.integers(1, 1 + (room // stride if stride else 2)))
        room -= (extent - 1) * stride
        shape.append(extent)
        strides.append(stride)
    return Tensor("view", tuple(shape), "int32", Storage("a", offset, tuple(strides)))


def strided(buffer: Array, shape: tuple[int, ...], storage: Storage) -> Array:
    strides = tuple(s * buffer.itemsize for s in storage.strides)
    return np.ndarray(shape, buffer.dtype, buffer, storage.offset * buffer.itemsize, strides)


def test_parts_in_another_order_are_not_side_by_side() -> None:
    whole = Tensor("y", (4,), "int8", Storage("y", 0, (1,)))
    places = [Tensor("y0", (2,), "int8", Storage("y", o, (1,))) for o in (0, 2)]
    parts = [Tensor("p", (2,), "int8", Storage("p", o, (1,))) for o in (3, 5)]
    assert side_by_side(whole, list(zip(parts, places, strict=True))) == Storage("p", 3, (1,))
    assert side_by_side(whole, list(zip(parts[::-1], places, strict=True))) is None
    assert side_by_side(whole, [(parts[0], places[0])]) is None


Sums = list[tuple[str, str, str]]
"""(result, a, b): result = a + b."""


def host_node(sums: Sums, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> HostNode:
    payload = json.dumps({"inputs": inputs, "sums": sums, "outputs": outputs}).encode()
    return HostNode(inputs, outputs, payload, sums[0][0], "Sum", "for the test")


def host(payload: bytes, arrays: list[Array]) -> list[Array]:
    said = json.loads(payload)
    values = dict(zip(said["inputs"], arrays, strict=True))
    for result, a, b in said["sums"]:
        values[result] = values[a] + values[b]
    return [values[name] for name in said["outputs"]]


def join(
    nodes: tuple[HostNode, ...], outputs: tuple[str, ...], inputs: tuple[str, ...]
) -> HostNode:
    sums = [tuple(item) for node in nodes for item in json.loads(node.payload)["sums"]]
    return host_node(sums, inputs, outputs)


def graph_of(steps: list[tuple[bool, int, int]]) -> NestGraph:
    """Sums of two earlier tensors each, on the host or as nests; the last tensor is the output."""
    build = NestGraphBuilder("g", "fp32")
    names = ["x"]
    build.create("x", (2,), "fp32")
    for number, (on_host, a, b) in enumerate(steps):
        out, left, right = f"t{number}", names[a % len(names)], names[b % len(names)]
        if on_host:
            build.create(out, (2,), "fp32")
            inputs = tuple(dict.fromkeys((left, right)))
            build.steps.append(host_node([(out, left, right)], inputs, (out,)))
        else:
            operands = [build.tensors[left], build.tensors[right]]
            build.elementwise(out, (2,), "add", operands)
        names.append(out)
    return build.graph(("x",), (names[-1], names[len(names) // 2]), {})


def calls(graph: NestGraph) -> int:
    return sum(isinstance(step, HostNode) for step in graph.steps)


places = st.integers(0, 20)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.booleans(), places, places), min_size=1, max_size=12))
def test_same_result_in_no_more_calls(steps: list[tuple[bool, int, int]]) -> None:
    graph = graph_of(steps)
    joined = JoinHost().apply(graph, join)
    x = {"x": np.array([1, 2], np.float32)}
    before, after = run(graph, x, host), run(joined, x, host)
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values)
    assert calls(joined) <= calls(graph)
    positions = [n for n, step in enumerate(joined.steps) if isinstance(step, HostNode)]
    assert all(b > a + 1 for a, b in itertools.pairwise(positions))


def test_independent_nodes_wait_for_each_other() -> None:
    graph = graph_of([(True, 0, 0), (False, 0, 0), (True, 1, 0), (False, 2, 3)])
    joined = JoinHost().apply(graph, join)
    assert [line.split(" ")[0] for line in print_graph(joined).splitlines() if "=" in line] == [
        line.split(" ")[0] for line in print_graph(graph_order(graph)).splitlines() if "=" in line
    ]
    assert calls(joined) == 1


def graph_order(graph: NestGraph) -> NestGraph:
    """The expected graph, by hand: the nest t1 first, then one call that gives t2 alone."""
    t0, t1, t2, t3 = graph.steps
    assert isinstance(t0, HostNode) and isinstance(t2, HostNode)
    one = join((t0, t2), ("t2",), ("x",))
    tensors = {name: t for name, t in graph.tensors.items() if name != "t0"}
    buffers = {name: size for name, size in graph.buffers.items() if name != "t0"}
    return NestGraph("g", tensors, buffers, (t1, one, t3), graph.inputs, graph.outputs)


def test_joining_can_be_switched_off() -> None:
    graph = graph_of([(True, 0, 0), (True, 1, 0)])
    assert JoinHost(join=False).apply(graph, join) is graph
