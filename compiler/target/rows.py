"""Gather and scatter of rows by copy engines: is there one, and is it the fastest way?

Otherwise nests compute the same, where possible, else the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from compiler.cost.overlap import host_cycles
from compiler.cost.transfer import Path
from compiler.passes import ensured
from compiler.target.bind import unsupported
from compiler.target.machine import form_of
from compiler.tensor_ir.nest import (
    HostNode,
    Nest,
    NestGraph,
    Pick,
    Picked,
    Put,
    RowPlacement,
    Step,
    Tensor,
)
from compiler.tensor_ir.rewrite import NestRewrite
from simmodel.arch.element_types import PACKED, size_of
from simmodel.arch.record import Arch
from simmodel.isa.copy import INDICES, Gather, Scatter
from simmodel.isa.forms import cost_of


@dataclass(frozen=True)
class CopyRows(NestRewrite):
    """Decide which rows copy engines pick and put by themselves.

    before:
        host (y) = TensorScatter(past, new, at) puts new into past by at along 1 as y
    after:
        m[d1] = equal(ramp[d1], at[]); y[d1, d2] = select(m[d1], new[0, d2], past[d1, d2])
                                       # on a machine whose copy engines take no list of rows
    """

    @ensured
    def apply(self, graph: NestGraph, arch: Arch) -> NestGraph:
        """`graph` with only those gathers and scatters that `arch` does itself."""
        steps: list[Step] = []
        for step in graph.steps:
            if not isinstance(step, HostNode):
                steps.append(step)
                continue
            why = lacks(step, graph, arch) if self.enabled else "copy-rows is left out"
            if why is not None and step.otherwise:
                steps += step.otherwise
            elif why is not None and step.pick is not None:
                steps.append(replace(step, pick=None, reason=why))
            else:
                steps.append(replace(step, otherwise=()))
        return replace(graph, steps=tuple(steps))


def lacks(node: HostNode, graph: NestGraph, arch: Arch) -> str | None:
    """Why the machine does not gather or scatter rows itself, or should not; None: it does.

    Its engines copy them from or to wherever they are read or produced, so all load engines, or all
    store engines, must support it.
    """
    pick, tensors = node.pick, graph.tensors
    if pick is None:
        return f"no copy of rows says {node.kind}"
    table, index = tensors[pick.table], tensors[pick.index]
    if index.dtype not in INDICES:
        return f"copy engines take no list of {index.dtype}"
    if table.dtype in PACKED:
        return f"rows of {table.dtype} may begin inside a byte"
    puts = isinstance(pick, Put)
    form = Scatter.MNEMONIC if puts else Gather.MNEMONIC
    if not arch.isa.has(form):
        return f"{arch.name} has no {form}"
    home = _home(table, arch)
    far = {n: e for n, e in arch.copy_.items() if home in (e.to if puts else e.from_)}
    unable = [
        name for name, engine in far.items()
        if engine.indirect is None or _home(index, arch) not in (*engine.from_, *engine.to)
    ]  # fmt: skip
    if unable or arch.copy_engine(*(("local", home) if puts else (home, "local"))) is None:
        return f"no list of rows is taken by {' and '.join(unable) or 'a copy engine'}"
    own, other = _takes(pick, tensors[node.outputs[0]], graph, arch), _else(node, tensors, arch)
    if own > other:
        return f"rows are so short that other ways are quicker ({own:.0f} : {other:.0f} cycles)"
    return None


def _home(tensor: Tensor, arch: Arch) -> str:
    """The memory off chip in which a table or a list lies."""
    return arch.constants if tensor.constant else "dram"


def _takes(pick: Pick, made: Tensor, graph: NestGraph, arch: Arch) -> float:
    """Cycles in which one core copies all rows, from a table stored for that."""
    tensors = graph.tensors
    table, index = tensors[pick.table], tensors[pick.index]
    if not isinstance(pick, Put):
        rows = replace(made, picked=Picked(table, index, pick.axis))
        copied = float(Path(arch, 1, _home(table, arch), "local").box(rows, rows.shape).cycles)
        given = table.data is not None or table.storage.buffer in graph.inputs
        # A computed table has to be stored first.
        store = _tensor_bytes(table) / arch.dram_bytes_per_cycle + arch.dram_latency
        return copied if given else copied + store
    rows = replace(tensors[pick.update], placed=RowPlacement(table, index, pick.axis, pick.block))
    return float(Path(arch, 1, "dram", "local", store=True).box(rows, rows.shape).cycles)


def _else(node: HostNode, tensors: dict[str, Tensor], arch: Arch) -> float:
    """Cycles of the alternative: nests, or, if no engine runs these, the host."""
    if not node.otherwise or any(unsupported(nest, tensors, arch) for nest in node.otherwise):
        return host_cycles(replace(node, pick=None, otherwise=()), tensors, arch)
    work = sum(_compared(nest, tensors, arch) for nest in node.otherwise)
    # The whole table comes, and where rows are put goes as well, at the rate of DRAM.
    assert node.pick is not None
    puts = isinstance(node.pick, Put)
    moved = _tensor_bytes(tensors[node.outputs[0] if puts else node.pick.table])
    return max(work, (1 + puts) * (moved / arch.dram_bytes_per_cycle + arch.dram_latency))


def _compared(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> float:
    """Cycles of all cores' vector engines for a nest, with full lanes."""
    form, kinds = form_of(nest), (nest.tensor, *(access.tensor for access in nest.reads))
    widest = max(size_of(tensors[name].dtype) for name in kinds)
    vectors = math.prod(dim.extent for dim in nest.dims) / arch.vector.elements(widest)
    work = vectors * arch.factor(form, cost_of(form)) / (arch.vector.units * arch.core_count)
    return arch.vector.startup.cycles(arch.clock) + work


def _tensor_bytes(tensor: Tensor) -> int:
    return tensor.elements * size_of(tensor.dtype)
