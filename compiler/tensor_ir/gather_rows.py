"""Gathered rows without a copy: readers load the rows from the table, producers store rows into it.

The result of a gather is written only where something other than a nest reads it, or reads it with
another shape or a border. New rows of a scatter are stored into the table by their producer
(`_put_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.passes import Result
from compiler.tensor_ir.build import plain, reading
from compiler.tensor_ir.nest import (
    Access,
    HostNode,
    Nest,
    NestGraph,
    Pick,
    Picked,
    Put,
    RowPlacement,
    Step,
    Storage,
    Tensor,
    at,
    row_major,
)
from compiler.tensor_ir.rewrite import NestPass, reads_of, with_steps, writes_of


def _put_rows(graph: NestGraph, step: HostNode, put: Put) -> NestGraph:
    """`graph` in which the producer of new rows stores them into the table that `step` writes.

    before:
        buffer past 32; buffer y 32; buffer new 4
        host (y) = TensorScatter(past, new, at) puts new into past by at along 1 as y
    after:
        buffer past 32; buffer new 4
        tensor y at past + 0; tensor new put into y by at along 1
    """
    graph, step, put = _shared(graph, step, put)
    table, index, update = (graph.tensors[name] for name in (put.table, put.index, put.update))
    placed = RowPlacement(table, index, put.axis, put.block)
    if _private(graph, step, put):
        tensors = {**graph.tensors, put.update: replace(update, placed=placed)}
        return replace(graph, tensors=tensors)
    rows = f"{put.table}.rows"
    inputs = (*(name for name in step.inputs if name != put.update), rows)
    changed = replace(step, inputs=inputs, pick=replace(put, update=rows))
    made = replace(
        update, name=rows, storage=Storage(rows, 0, row_major(update.shape)), data=None,
        exact=None, narrow=None, placed=placed,
    )  # fmt: skip
    return replace(
        graph, tensors={**graph.tensors, rows: made},
        buffers={**graph.buffers, rows: update.elements},
        steps=_instead(graph, step, (_copy(rows, update, step), changed)),
    )  # fmt: skip


def _shared(graph: NestGraph, step: HostNode, put: Put) -> tuple[NestGraph, HostNode, Put]:
    """With the table in the bytes of its input, or behind a copy of it."""
    given, table = graph.tensors[put.given], graph.tensors[put.table]
    own, place = table.storage, given.storage
    dense = own.offset == place.offset == 0 and table.has_strides(place.strides)
    whole = graph.buffers[own.buffer] == graph.buffers[place.buffer] == given.elements
    number = graph.steps.index(step)
    later = [s for s in graph.steps[number + 1 :] if _touches(s, place.buffer, graph)]
    ports = [n for n in graph.outputs if graph.buffer_of(n) == place.buffer]
    alike = given.dtype == table.dtype and given.data is None
    if dense and whole and alike and not later and not ports:
        tensors = {
            name: replace(t, storage=replace(t.storage, buffer=place.buffer))
            if t.storage.buffer == own.buffer
            else t
            for name, t in graph.tensors.items()
        }
        buffers = {name: size for name, size in graph.buffers.items() if name != own.buffer}
        return replace(graph, tensors=tensors, buffers=buffers), step, put
    base = f"{put.table}.given"
    copy = _copy(base, given, step)
    inputs = tuple(base if name == put.given else name for name in step.inputs)
    if put.given not in step.inputs:  # a constant stands in the payload
        inputs = (base, *step.inputs)
    put = replace(put, given=base)
    changed = replace(step, inputs=inputs, pick=put)
    tensors = {**graph.tensors, base: replace(table, name=base)}
    steps = _instead(graph, step, (copy, changed))
    return replace(graph, tensors=tensors, steps=steps), changed, put


def _private(graph: NestGraph, step: HostNode, put: Put) -> bool:
    """Whether one nest produces the new rows, alone in their buffer, only `step` reads them, and no
    step in between touches the table or writes the index."""
    name = put.update
    tensor, table = graph.tensors[name], graph.buffer_of(put.table)
    buffer = tensor.storage.buffer
    if buffer in {graph.buffer_of(n) for n in (*graph.inputs, *graph.outputs)}:
        return False
    users = [s for s in graph.steps if _touches(s, buffer, graph)]
    makers = [s for s in users if name in writes_of(s)]
    alone = len(users) == 2 and len(makers) == 1 and isinstance(makers[0], Nest)
    if not alone or users[-1] is not step or tensor.elements != graph.buffers[buffer]:
        return False
    between = graph.steps[graph.steps.index(makers[0]) : graph.steps.index(step)]
    places = graph.buffer_of(put.index)
    made = {graph.buffer_of(n) for s in between for n in writes_of(s)}
    return places not in made and not any(_touches(s, table, graph) for s in between)


def _copy(name: str, source: Tensor, step: HostNode) -> Nest:
    """Operator of the node of `step` that copies a tensor to one called `name`."""
    access = Access(source.name, tuple(map(at, range(len(source.shape)))))
    nest = plain(name, source.shape, "move", (access,))
    return replace(nest, origin=step.origin, kind=step.kind)


def _touches(step: Step, buffer: str, graph: NestGraph) -> bool:
    names = (*reads_of(step), *writes_of(step))
    return any(graph.buffer_of(name) == buffer for name in names)


def _instead(graph: NestGraph, step: Step, others: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(each for s in graph.steps for each in (others if s is step else (s,)))


@dataclass(frozen=True)
class ReadRows(NestPass):
    """Picked tensors that lie in their tables.

    host (e) = Gather(i) picks w by i along 0          tensor e picks w by i along 0
    y[n=4, d=64] = add(e[n, d], p[n, d])        =>     y[n=4, d=64] = add(e[n, d], p[n, d])
    """

    directly: bool = True
    """False: they are written to memory first."""

    def apply(self, ir: NestGraph) -> Result[NestGraph]:
        picks = [step for step in ir.steps if isinstance(step, HostNode) and step.pick is not None]
        for step in picks:
            if isinstance(step.pick, Put):
                ir = _put_rows(ir, step, step.pick)
            else:
                ir = _in_place(ir, step) if self.directly else _write_picked_rows(ir, step)
        return Result(ir, bool(picks))


def _in_place(graph: NestGraph, step: HostNode) -> NestGraph:
    """`graph` with all readers of `step`'s result reading the table itself; if that is impossible,
    the result is written first."""
    (name,) = step.outputs
    own, buffer = graph.tensors[name], graph.buffer_of(name)
    names = {n for n, tensor in graph.tensors.items() if tensor.storage.buffer == buffer}
    makers = [s for s in graph.steps if not names.isdisjoint(writes_of(s))]
    if makers != [step] or not names.isdisjoint((*graph.inputs, *graph.outputs)):
        return _write_picked_rows(graph, step)
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
            return _write_picked_rows(graph, step)
        steps.append(found)
    assert step.pick is not None
    tensors = {**graph.tensors, name: _picked(own, step, step.pick, graph)}
    return with_steps(replace(graph, tensors=tensors), steps)


def _write_picked_rows(graph: NestGraph, step: HostNode) -> NestGraph:
    """`graph` with the rows of `step` written to memory by a copying nest."""
    assert step.pick is not None
    (name,) = step.outputs
    own = graph.tensors[name]
    rows = f"{name}.rows"
    virtual = Tensor(rows, own.shape, own.dtype, Storage(rows, 0, row_major(own.shape)))
    tensors = {**graph.tensors, rows: _picked(virtual, step, step.pick, graph)}
    steps = _instead(graph, step, (replace(step, outputs=(rows,)), _copy(name, virtual, step)))
    buffers = {**graph.buffers, rows: own.elements}
    return replace(graph, tensors=tensors, buffers=buffers, steps=steps)


def _picked(tensor: Tensor, step: HostNode, pick: Pick, graph: NestGraph) -> Tensor:
    table, index = graph.tensors[pick.table], graph.tensors[pick.index]
    return replace(tensor, picked=Picked(table, index, pick.axis, step.origin, step.kind))
