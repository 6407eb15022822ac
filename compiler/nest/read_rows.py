"""Rows are read where they lie: whoever reads what a node picks, copies the rows themselves.

What is picked need not be written anywhere. It is where others than nests read it, or under another
shape than its own, or with a border around it. New rows are put where they belong by whoever makes
them (`compiler.nest.put_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.nest.base import NestPass
from compiler.nest.build import plain
from compiler.nest.ir import Access as Read
from compiler.nest.ir import (
    HostNode,
    Nest,
    NestGraph,
    Pick,
    Picked,
    Put,
    Step,
    Storage,
    Tensor,
    at,
    row_major,
)
from compiler.nest.put_rows import put_rows
from compiler.nest.rewrite import reads_of, with_steps, writes_of
from compiler.nest.views import reading
from compiler.passes import Result


@dataclass(frozen=True)
class ReadRows(NestPass):
    """Picked tensors that lie in their tables.

    host (e) = Gather(i) picks w by i along 0          tensor e picks w by i along 0
    y[n=4, d=64] = add(e[n, d], p[n, d])        =>     y[n=4, d=64] = add(e[n, d], p[n, d])
    """

    directly: bool = True
    """False: they are written to memory first."""

    def apply(self, ir: NestGraph) -> Result[NestGraph]:
        """Let the readers of each pick read its table."""
        picks = [step for step in ir.steps if isinstance(step, HostNode) and step.pick is not None]
        for step in picks:
            if isinstance(step.pick, Put):
                ir = put_rows(ir, step, step.pick)
            else:
                ir = _in_place(ir, step) if self.directly else _written(ir, step)
        return Result(ir, bool(picks))


def _in_place(graph: NestGraph, step: HostNode) -> NestGraph:
    """`graph` with all nests that read what `step` picks reading the table itself; where that does
    not go, what it picks is written first."""
    (name,) = step.outputs
    own, buffer = graph.tensors[name], graph.tensors[name].storage.buffer
    names = {n for n, tensor in graph.tensors.items() if tensor.storage.buffer == buffer}
    makers = [s for s in graph.steps if not names.isdisjoint(writes_of(s))]
    if makers != [step] or not names.isdisjoint((*graph.inputs, *graph.outputs)):
        return _written(graph, step)
    steps: list[Step] = []
    for other in graph.steps:
        found: Step | None = other
        for view in sorted(names.intersection(reads_of(other))):
            if isinstance(found, Nest):
                found = reading(found, graph.tensors[view], own) if view != name else found
            else:
                found = None
        bordered = isinstance(found, Nest) and any(
            access.tensor == name and access.pad is not None for access in found.reads
        )
        if found is None or bordered:
            return _written(graph, step)
        steps.append(found)
    assert step.pick is not None
    tensors = {**graph.tensors, name: _picked(own, step, step.pick, graph)}
    return with_steps(replace(graph, tensors=tensors), steps)


def _written(graph: NestGraph, step: HostNode) -> NestGraph:
    """`graph` with what `step` picks written to memory by a nest that does nothing else."""
    assert step.pick is not None
    (name,) = step.outputs
    own = graph.tensors[name]
    rows = f"{name}.rows"
    virtual = Tensor(rows, own.shape, own.dtype, Storage(rows, 0, row_major(own.shape)))
    tensors = {**graph.tensors, rows: _picked(virtual, step, step.pick, graph)}
    access = Read(rows, tuple(at(axis) for axis in range(len(own.shape))))
    move = replace(plain(name, own.shape, "move", (access,)), origin=step.origin, kind=step.kind)
    steps = [
        each
        for other in graph.steps
        for each in ((replace(step, outputs=(rows,)), move) if other is step else (other,))
    ]
    buffers = {**graph.buffers, rows: own.elements}
    return replace(graph, tensors=tensors, buffers=buffers, steps=tuple(steps))


def _picked(tensor: Tensor, step: HostNode, pick: Pick, graph: NestGraph) -> Tensor:
    table, index = graph.tensors[pick.table], graph.tensors[pick.index]
    return replace(tensor, picked=Picked(table, index, pick.axis, step.origin, step.kind))
