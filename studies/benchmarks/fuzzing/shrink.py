"""A failing case made small: less graph, plainer machine, usual options, the same signature.

The one idea: try smaller cases one after the other, keep each that fails in the same way, and begin
again until none does.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx

from archgen.check.reference import sample_inputs
from fuzzing.cases import Case, plainer
from fuzzing.machines import Tree, is_machine
from fuzzing.net import REFUSED, Array, port, run_model

Fails = Callable[[Case], bool]


def shrunk(case: Case, fails: Fails, seconds: float) -> Case:
    """The smallest case found in time that `fails` as `case` does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        smaller = next((s for s in _smaller(case, until) if fails(s)), None)
        if smaller is None:
            break
        case = smaller
    return case


def _smaller(case: Case, until: float) -> Iterator[Case]:
    graphs = (replace(case, model=model) for model in smaller_graphs(case.model))
    machines = (replace(case, machine=tree) for tree in smaller_machines(case.machine, case.dtype))
    for step in (graphs, plainer(case), machines):
        for found in step:
            if time.monotonic() > until:
                return
            yield found


# Graphs.


def smaller_graphs(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Parts of a model that are models: what an earlier value needs, what a later one is made of,
    one operator less, one attribute less."""
    known = values_of(model)
    outputs = [value.name for value in model.graph.output]
    made = [name for node in model.graph.node for name in node.output if name]
    if len(outputs) > 1:
        yield from (part(model, [name], (), known) for name in outputs)
    yield from (part(model, [name], (), known) for name in made if [name] != outputs)
    yield from (part(model, outputs, (n,), known) for n in reversed(made) if n not in outputs)
    yield from _bypassed(model, outputs, known)
    yield from _plainer_nodes(model)
    loose = part(model, outputs, (), known)
    if loose.ByteSize() < model.ByteSize():
        yield loose


def values_of(model: onnx.ModelProto) -> dict[str, Array]:
    """Every computed value of a model and its inputs."""
    whole = copy.deepcopy(model)
    feeds = sample_inputs(model)
    names = [name for node in model.graph.node for name in node.output if name]
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    try:
        return feeds | dict(zip(names, run_model(whole, feeds), strict=True))
    except REFUSED:
        return feeds


def part(
    model: onnx.ModelProto, outputs: Sequence[str], cut: Collection[str], known: Mapping[str, Array]
) -> onnx.ModelProto:
    """What `outputs` need of `model`, with values of `cut` as inputs instead of computed."""
    made = copy.deepcopy(model)
    graph = made.graph
    needed, nodes = set(outputs), []
    for node in reversed(model.graph.node):
        if (set(node.output) & needed) - set(cut):
            nodes.append(node)
            needed |= set(node.input)
    kept = [value for value in model.graph.input if value.name in needed]
    data = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    ports = [port(name, known[name]) for name in cut if name in needed and name in known]
    for field in (graph.node, graph.input, graph.initializer, graph.output):
        del field[:]
    graph.node.extend(reversed(nodes))
    graph.input.extend([*kept, *ports])
    graph.initializer.extend(data)
    graph.output.extend(port(name, known[name]) for name in outputs if name in known)
    return made


def _bypassed(
    model: onnx.ModelProto, outputs: Sequence[str], known: Mapping[str, Array]
) -> Iterator[onnx.ModelProto]:
    """The model without one operator whose result looks like one of its inputs."""
    for index, node in enumerate(model.graph.node):
        here = known.get(node.output[0])
        for name in node.input:
            there = known.get(name)
            if here is None or there is None or node.output[0] in outputs:
                continue
            if here.shape == there.shape and here.dtype == there.dtype:
                made = copy.deepcopy(model)
                for other in made.graph.node:
                    for at, read in enumerate(other.input):
                        if read == node.output[0]:
                            other.input[at] = name
                del made.graph.node[index]
                yield part(made, outputs, (), known)


def _plainer_nodes(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """The model with one attribute or one optional input less."""
    for index, node in enumerate(model.graph.node):
        for at in range(len(node.attribute)):
            made = copy.deepcopy(model)
            del made.graph.node[index].attribute[at]
            yield _retyped(made)
        if len(node.input) > 2:
            made = copy.deepcopy(model)
            del made.graph.node[index].input[-1]
            yield _retyped(made)


def _retyped(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with the outputs that it has now."""
    known = values_of(model)
    return part(model, [value.name for value in model.graph.output], (), known)


# Machines.


def smaller_machines(tree: Tree, dtype: str) -> Iterator[Tree]:
    """Machines with one field less, or one number less, that pass every rule."""
    for path in _paths(tree):
        for value in _plainer_values(path, _at(tree, path), dtype):
            made = copy.deepcopy(tree)
            owner = _at(made, path[:-1])
            if value is None:
                del owner[path[-1]]
            else:
                owner[path[-1]] = value
            if is_machine(made):
                yield made


def _paths(tree: Tree, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        if (*at, key) != ("name",):
            yield (*at, key)
        if isinstance(value, dict):
            yield from _paths(value, (*at, key))


def _at(tree: Tree, path: Sequence[str]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _plainer_values(path: tuple[str, ...], value: Any, dtype: str) -> Iterator[Any]:
    """None stands for no such field. Sizes stay: less memory is another machine, not a plainer
    one."""
    yield None
    if path == ("types",) and len(value) > 1:
        yield [dtype]
    elif path in (("clusters",), ("cores",)) and value > 2:
        yield 2
    elif isinstance(value, list) and len(value) > 1:
        yield from ([*value[:i], *value[i + 1 :]] for i in range(len(value)))
    elif path[0] == "matrix" and path[-1] in ("rows", "cols", "depth") and value != 4:
        yield 4
    elif path == ("matrix", "kind") and value == "systolic":
        yield "cube"
    elif path[-1] == "granularity" and value != "conv":
        yield "conv"
