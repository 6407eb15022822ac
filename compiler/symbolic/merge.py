"""Merge the nest graphs of several lengths into one symbolic graph.

    scores[m=4, n=33]  at past=32                    scores[m=4, n=1 + past]
    scores[m=4, n=32]  at past=31             ->     new row at present + 256 - 8 (32 - past)
    new row at present + 256; at present + 248

The one idea: no operator has a rule for how it depends on a length. The operators are the same at
all lengths, and each number that differs is fitted as a linear function of the lengths. Numbers
that do not fit are reported, all at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from compiler.errors import UnsupportedModel, at_node
from compiler.symbolic.buffer_views import OtherBox, moves
from compiler.symbolic.ceil_div import extents_at
from compiler.symbolic.constants import Constants, begins_alike, is_mean, mean_scale_of, tables_of
from compiler.tensor_ir.nest import (
    ZERO,
    Access,
    Dim,
    HostNode,
    Nest,
    NestGraph,
    Step,
    Tensor,
    with_sources,
)
from compiler.tensor_ir.registers import (
    Count,
    Point,
    count_of,
    edge_of,
    fitted,
    from_where,
    lengths_among,
    payload_of_any,
    point_text,
    values_at_point,
)
from compiler.tensor_ir.rewrite import reads_of, writes_of
from simmodel.isa.region import Register, Terms

_SHOWN = 12
"""Reasons in a message; more are only counted."""


def merge_graphs(
    graphs: Mapping[Point, NestGraph], registers: tuple[Register, ...], constants: Constants | None,
    real: str = "fp32",
) -> NestGraph:  # fmt: skip
    """The symbolic graph for all lengths of `registers`.

    Args:
        graphs: of one network, made for the upper edge of all registers and for other points.
        registers: the lengths, in the order of the points, and shares of them.
        constants: for those that depend on a length.
        real: element type of numbers by which means differ from length to length.

    Raises UnsupportedModel with every reason why there is none.
    """
    edge = edge_of(registers)
    merge = _GraphMerge(graphs, registers, edge, constants, real)
    for point, graph in graphs.items():
        if (other := other_structure(graphs[edge], graph)) is not None:
            merge.mistakes.append(f"at {point_text(registers, point)} {other}")
    made = graphs[edge] if merge.mistakes else merge.graph()
    if merge.mistakes:
        raise refusal(made.name, registers, merge.mistakes)
    return made


def refusal(name: str, registers: Sequence[Register], mistakes: Sequence[str]) -> UnsupportedModel:
    """Error: the network of this name is not one program for all lengths, with the reasons."""
    known = list(dict.fromkeys(mistakes))
    more = [f"and {len(known) - _SHOWN} more"] if len(known) > _SHOWN else []
    lengths = lengths_among(registers)
    ranges = ", ".join(f"{r.name}={r.low}..{r.high}" for r in lengths)
    alone = " ".join(f"--dim {r.name}={r.high}" for r in lengths)
    head = f"{name}: not one program for {ranges}; compile each length by itself ({alone}):"
    return UnsupportedModel("\n  ".join([head, *known[:_SHOWN], *more]))


@dataclass
class _GraphMerge:
    graphs: Mapping[Point, NestGraph]
    registers: tuple[Register, ...]
    edge: Point
    constants: Constants | None
    real: str
    mistakes: list[str] = field(default_factory=list)
    tables: dict[str, Tensor] = field(default_factory=dict)
    """Constants of each length, and their rows where no tensor of the network is one."""

    def graph(self) -> NestGraph:
        """The merged graph; reasons for failure go to `mistakes`."""
        edge = self.graphs[self.edge]
        own = self._tensors()
        steps = tuple(
            self._merge_step({point: graph.steps[number] for point, graph in self.graphs.items()})
            for number in range(len(edge.steps))
        )
        tensors = {**own, **self.tables}
        used = {tensor.storage.buffer for tensor in tensors.values()}
        sizes = {name: table.elements for name, table in self.tables.items()}
        buffers = {n: size for n, size in {**edge.buffers, **sizes}.items() if n in used}
        return replace(
            edge, tensors=tensors, buffers=buffers, steps=steps, registers=self.registers
        )

    def count(self, known: Mapping[Point, int], what: str) -> Count | None:
        """A number of positions as a function of lengths; None: it is constant."""
        registers, terms = self.registers, self.terms(known, what)
        if not terms:
            return None
        found = count_of(terms, known, registers)
        shrinking = [name for name, factor in terms if factor < 0]
        low = tuple(register.low for register in lengths_among(registers))
        least = found.at({register.name: register.low for register in registers})
        if shrinking:
            self.mistakes.append(f"{what} becomes less where {shrinking[0]} becomes more")
        elif least < 0:
            there = from_where(
                lambda point: found.at(values_at_point(registers, point)) > 0, registers, low
            )
            at = point_text(registers, low)
            self.mistakes.append(f"{what} follows from longer inputs as {least} at {at}{there}")
        return found

    def terms(self, known: Mapping[Point, int], what: str) -> Terms:
        """A number as a linear function of registers."""
        found = fitted(known, self.registers)
        if found is None:
            seen = [f"{n} at {point_text(self.registers, point)}" for point, n in known.items()]
            self.mistakes.append(f"{what} is no sum of multiples of the lengths: {', '.join(seen)}")
        return found or ()

    # Tensors.

    def _tensors(self) -> dict[str, Tensor]:
        edge = self.graphs[self.edge]
        offsets = self._offsets()
        made = {}
        for name, tensor in edge.tensors.items():
            counts = tuple(
                self.count(
                    extents_at(self.graphs, name, axis),
                    f"{self._whose(name)}: the extent of {name} along axis {axis}",
                )
                for axis in range(len(tensor.shape))
            )
            storage = replace(tensor.storage, registers=offsets.get(name, ()))
            made[name] = replace(tensor, storage=storage, counts=counts if any(counts) else ())
        self._add_tables(made)
        return {
            name: with_sources(tensor, lambda t: made.get(t.name, t))
            for name, tensor in made.items()
        }

    def _offsets(self) -> dict[str, Terms]:
        found: dict[str, Terms] = {}
        shared: dict[str, list[str]] = {}
        for tensor in self.graphs[self.edge].tensors.values():
            shared.setdefault(tensor.storage.buffer, []).append(tensor.name)
        for buffer, names in shared.items():
            sizes = {point: graph.buffers[buffer] for point, graph in self.graphs.items()}
            views = {p: [g.tensors[name] for name in names] for p, g in self.graphs.items()}
            pairs = (zip(seen, views[self.edge], strict=True) for seen in views.values())
            if all(a.shape == b.shape and (a.storage == b.storage or not a.elements)
                   for a, b in chain.from_iterable(pairs)):  # fmt: skip
                continue
            try:
                found |= moves(views, sizes, self.registers)
            except OtherBox as why:
                name, said = why.args
                self.mistakes.append(f"{self._whose(name)}: {name} cannot stay a view: {said}")
        return found

    def _add_tables(self, made: dict[str, Tensor]) -> None:
        """Constants: equal at all lengths, prefixes of the value at the maximum, or rows of a table
        with one row per length."""
        varying: dict[str, dict[Point, Tensor]] = {}
        for name in made:
            seen = {point: graph.tensors[name] for point, graph in self.graphs.items()}
            edge = seen[self.edge].data
            if edge is not None and not all(begins_alike(t.data, edge) for t in seen.values()):
                varying[name] = seen
        if not varying:
            return
        lengths = lengths_among(self.registers)
        tables = tables_of(varying, self.graphs[self.edge], lengths, self.constants)
        for name, found in tables.items():
            if isinstance(found, str):
                self.mistakes.append(f"{self._whose(name)}: the constant {name} {found}")
                continue
            table, row = found
            made[name] = replace(made[name], storage=row)
            self.tables[table.name] = table

    def _whose(self, name: str) -> str:
        """The node that produces a tensor, or else reads it, in words; of a view, its base."""
        edge = self.graphs[self.edge]
        buffer = edge.buffer_of(name)
        beside = [n for n, tensor in edge.tensors.items() if tensor.storage.buffer == buffer]
        for names in ([name], beside):
            for ports in (writes_of, reads_of):
                for step in edge.steps:
                    if not {*names}.isdisjoint(ports(step)):
                        return _node(step)
        return f"input {name!r}"

    # Operators.

    def _merge_step(self, seen: Mapping[Point, Step]) -> Step:
        step = seen[self.edge]
        if isinstance(step, Nest):
            return self._nest(step, {p: s for p, s in seen.items() if isinstance(s, Nest)})
        payloads = {node.payload for node in seen.values() if isinstance(node, HostNode)}
        if step.pick is not None or len(payloads) == 1:
            return step
        free = {payload_of_any(payload) for payload in payloads}
        if len(free) > 1:
            self.mistakes.append(
                f"{_node(step)}: runs on the host ({step.reason}), in another way at each length"
            )
        return replace(step, payload=next(iter(free)))

    def _nest(self, step: Nest, seen: Mapping[Point, Nest]) -> Nest:
        where = _node(step)
        for name in _NUMBERS:
            values = {repr(getattr(nest, name)) for nest in seen.values()}
            if len(values) > 1:
                self.mistakes.append(
                    f"{where}: its {name} depends on the length ({', '.join(sorted(values)[:3])})"
                )
        dims = tuple(
            replace(dim, count=self.count(
                {point: nest.dims[d].extent for point, nest in seen.items()},
                f"{where}: the extent of loop {dim.name}",
            ))
            for d, dim in enumerate(step.dims)
        )  # fmt: skip
        share = None
        if is_mean(seen):
            found = mean_scale_of(step.tensor, dims[step.rank :], self.registers, self.real)
            if isinstance(found, str):
                self.mistakes.append(f"{where}: {found}")
            else:
                self.tables |= {tensor.name: tensor for tensor in found}
                share = Access(found[-1].name, (ZERO,))
                scale = step.operands[0].scale
                seen = {
                    point: replace(nest, operands=(replace(nest.operands[0], scale=scale),))
                    for point, nest in seen.items()
                }
        reads = [
            self._access(dict(zip(seen, each, strict=True)), seen, dims, where)
            for each in zip(*(nest.reads for nest in seen.values()), strict=True)
        ]
        made = replace(step.with_reads(reads), dims=dims)
        return made if share is None else replace(made, multiplier=share)

    def _access(
        self, seen: Mapping[Point, Access], nests: Mapping[Point, Nest], dims: tuple[Dim, ...],
        where: str,
    ) -> Access:  # fmt: skip
        edge = seen[self.edge]
        what = f"{where}: where it reads {edge.tensor}"
        if len({(a.pad, a.scale, a.zero) for a in seen.values()}) > 1:
            self.mistakes.append(f"{what}, its pad or scale depends on the length")
        index = []
        for axis, affine in enumerate(edge.index):
            place = f"{what} along axis {axis}"
            along = {point: access.index[axis] for point, access in seen.items()}
            for d, dim in enumerate(dims):  # of a loop with several iterations
                walking = [point for point in along if nests[point].dims[d].extent > 1]
                if len({along[point].coefficient(d) for point in walking}) > 1:
                    said = f"{place}, the step of loop {dim.name} depends on the length"
                    self.mistakes.append(said)
            terms = self.terms(
                {point: each.constant for point, each in along.items()},
                f"{what}, the position along axis {axis}",
            )
            index.append(replace(affine, registers=terms))
        return replace(edge, index=tuple(index))


_NUMBERS = ("parameters", "table", "middle", "low", "high", "scale", "zero", "sparse", "block")
"""Fields of a nest that do not depend on a length."""


def other_structure(edge: NestGraph, graph: NestGraph) -> str | None:
    """The first structural difference between `graph` and `edge`, in words; None if they differ in
    numbers only."""
    for a, b in zip(edge.steps, graph.steps, strict=False):
        if _structure(a) != _structure(b):
            there = "" if _node(a) == _node(b) else f", and {_node(b)} stands in its place"
            return f"{_node(a)} is computed in another way{there}"
    if len(edge.steps) != len(graph.steps):
        longer = max(edge.steps, graph.steps, key=len)
        return f"{_node(longer[min(len(edge.steps), len(graph.steps))])} is there or not"
    for what in ("inputs", "outputs", "ports", "codes", "sized"):
        if getattr(edge, what) != getattr(graph, what):
            return f"the network has other {what}"
    kinds = [{name: _tensor_signature(t) for name, t in g.tensors.items()} for g in (edge, graph)]
    lost = [name for name in {**kinds[0], **kinds[1]} if kinds[0].get(name) != kinds[1].get(name)]
    return f"{lost[0]} is another tensor" if lost else None


def _tensor_signature(tensor: Tensor) -> tuple[object, ...]:
    """A tensor apart from its extents."""
    rows = [
        None if each is None else (each.table.name, each.index.name, each.axis)
        for each in (tensor.picked, tensor.placed)
    ]
    block = tensor.placed is not None and tensor.placed.block
    constant = tensor.data is not None
    return (len(tensor.shape), tensor.dtype, tensor.storage.buffer, constant, block, *rows)


def _structure(step: Step) -> tuple[object, ...]:
    """An operator apart from its extents."""
    if isinstance(step, HostNode):
        return (step.inputs, step.outputs, step.kind, step.origin, step.pick)
    reads = tuple((a.tensor, len(a.index)) for a in step.reads)
    kept = ("tensor", "rank", "function", "reduce", "kind", "origin", "composite")
    names = tuple(dim.name for dim in step.dims)
    ends = (step.bias is None, step.multiplier is None, step.added is None)
    return (*(getattr(step, name) for name in kept), names, reads, ends)


def _node(step: Step) -> str:
    return at_node(step.origin, step.kind)
