"""Joined calls to the host compute the same in fewer calls, whatever lies between them."""

from __future__ import annotations

import itertools
import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.tensor_ir.build import NestGraphBuilder
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.join import JoinHost
from compiler.tensor_ir.nest import Array, HostNode, NestGraph
from compiler.tensor_ir.text import print_graph

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
