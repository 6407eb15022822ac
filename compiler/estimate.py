"""What a network should take by the cost model alone: groups and tiles chosen, nothing placed."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from compiler.driver import CompileOptions, Search, grouped, nests
from compiler.fit import Fitter
from compiler.nest.ir import HostNode
from compiler.schedule import in_turn
from simmodel.arch import Arch


@dataclass(frozen=True)
class NetworkEstimate:
    """Of one inference of the whole batch."""

    cycles: float
    """Nothing is estimated for the host."""
    host_ops: int


def estimate(model: ir.Model, arch: Arch, options: CompileOptions) -> NetworkEstimate:
    """What `model` (of `prepared`) should take on `arch`, without a program.

    Raises UnsupportedModel for operators that can run nowhere, DoesNotFit for one that fits in no
    tile.
    """
    graph = nests(model, arch, options.dtype or arch.types[0], options)
    fitter = Fitter(arch, options.stages)
    *_, groups = grouped(Search(graph, options.stages.fuse.apply(graph), fitter))
    host = sum(isinstance(part, HostNode) for part in groups)
    chosen = [fitter.schedules(part)[0] for part in groups if not isinstance(part, HostNode)]
    return NetworkEstimate(sum(in_turn([schedule.estimate for schedule in chosen])), host)
