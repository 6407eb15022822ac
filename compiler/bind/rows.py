"""Whether copy engines of a machine pick rows, and whether that is quicker than asking the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.cost.host import host_cycles
from compiler.cost.transfer import Path
from compiler.nest.ir import HostNode, Picked, Tensor
from simmodel.arch import Arch
from simmodel.dtype import PACKED
from simmodel.isa.indirect import INDICES, Gather


def lacks(node: HostNode, tensors: Mapping[str, Tensor], arch: Arch) -> str | None:
    """Why the machine does not pick rows itself, or had better not; None: it does.

    Its engines then copy them to wherever they are read, so all that load must be able to.
    """
    pick = node.pick
    if pick is None:
        return f"no copy of rows says {node.kind}"
    table, index, made = tensors[pick.table], tensors[pick.index], tensors[node.outputs[0]]
    if index.dtype not in INDICES:
        return f"copy engines take no list of {index.dtype}"
    if table.dtype in PACKED:
        return f"rows of {table.dtype} may begin inside a byte"
    if not arch.isa.has(Gather.MNEMONIC):
        return f"{arch.name} has no {Gather.MNEMONIC}"
    loads = {name: engine for name, engine in arch.copy_.items() if "dram" in engine.from_}
    unable = [name for name, engine in loads.items() if engine.indirect is None]
    if unable or arch.copy_engine("dram", "local") is None:
        return f"copy engine {' and '.join(unable)} takes no list of rows"
    rows = replace(made, picked=Picked(table, index, pick.axis))
    once = Path(arch, 1, "dram", "local").box(rows, rows.shape)
    called = host_cycles(replace(node, pick=None), tensors, arch)
    if once.cycles > called:
        return f"rows are so short that the host is quicker ({once.cycles:.0f} : {called} cycles)"
    return None
