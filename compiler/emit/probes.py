"""Where the model's own values can be seen while a program runs: what its steps store in DRAM.

A verdict on every operator needs what each of them was given and what it made of it. Tensors that
only the compiler knows, and what stays on chip, are not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from compiler.emit.program import Placed, ProgramEmitter, Step
from compiler.nest.ir import NestGraph
from simmodel.program import Port, Probe

Known = Mapping[str, Sequence[tuple[str, str]]]
"""Tensor -> (name, element type) of each value of the model that it holds."""


def probes(emitter: ProgramEmitter, known: Known) -> tuple[Probe, ...]:
    """For each value in `known` that a step stores: where, and when it is complete."""
    graph = emitter.graph
    last: dict[str, int] = {}
    written: dict[str, set[str]] = {}
    for number, name in _writes(emitter.steps):
        buffer = graph.tensors[name].storage.buffer
        last[buffer] = number
        written.setdefault(buffer, set()).add(name)
    found: dict[str, Probe] = {}
    for buffer, names in written.items():
        for name in _seen(buffer, names, graph, known):
            for port in _ports(emitter, name, known[name]):
                found[port.name] = Probe(f"step{last[buffer]}", port)
    return tuple(found.values())


def _writes(steps: Sequence[Step]) -> Iterator[tuple[int, str]]:
    for number, step in enumerate(steps):
        if isinstance(step, Placed):
            yield number, step.plan.tiled.group.result.name
        else:
            yield from ((number, name) for name in step.outputs)


def _seen(buffer: str, written: set[str], graph: NestGraph, known: Known) -> Iterable[str]:
    """Tensors in `buffer` to look at: results as they were written, and where a part of them is
    no value of the model, one that covers the buffer."""
    direct = [name for name in written if known.get(name)]
    if len(direct) == len(written):
        return direct
    covers = (
        name
        for name, values in known.items()
        if values and name in graph.tensors and _covers(graph, name, buffer)
    )
    return dict.fromkeys([*direct, *([first] if (first := next(covers, None)) else [])])


def _covers(graph: NestGraph, name: str, buffer: str) -> bool:
    tensor = graph.tensors[name]
    whole = tensor.elements == graph.buffers[buffer] and min(tensor.storage.strides, default=1) > 0
    return tensor.storage.buffer == buffer and whole


def _ports(
    emitter: ProgramEmitter, tensor: str, values: Sequence[tuple[str, str]]
) -> Iterator[Port]:
    port = emitter.port(tensor)
    return (replace(port, name=name, dtype=dtype) for name, dtype in values)
