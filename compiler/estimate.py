"""What a network should take by the cost model alone: groups and tiles chosen, nothing placed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from compiler.cost.host import host_cycles
from compiler.driver import CompileOptions, CompileResult, Search, grouped, layers, nests
from compiler.fit import Fitter
from compiler.nest.ir import HostNode, NestGraph
from compiler.schedule import Estimate, in_turn
from simmodel.arch import Arch


@dataclass(frozen=True)
class NetworkEstimate:
    """Of one inference of the whole batch."""

    cycles: float
    """Of its groups, and of the host's calls between them."""
    host_ops: int


def estimate(model: ir.Model, arch: Arch, options: CompileOptions) -> NetworkEstimate:
    """What `model` (of `prepared`) should take on `arch`, without a program.

    Raises UnsupportedModel for operators that can run nowhere, DoesNotFit for one that fits in no
    tile.
    """
    graph = nests(model, arch, options.dtype or arch.types[0], options)
    fitter = Fitter(arch, options.stages)
    *_, groups = grouped(Search(graph, layers(graph, arch, options.stages), fitter))
    host = sum(isinstance(part, HostNode) and part.pick is None for part in groups)
    chosen = [fitter.schedules(part)[0] for part in groups if not isinstance(part, HostNode)]
    return NetworkEstimate(_whole([made.estimate for made in chosen], graph, arch), host)


def expected(result: CompileResult, arch: Arch) -> float:
    """Cycles that the program of `result` should take on `arch`.

    Raises ValueError for a result that has lost its search.
    """
    if result.search is None:
        raise ValueError("this result does not say what it was chosen among")
    estimates = [made.schedule.estimate for made in result.decisions]
    return _whole(estimates, result.search.graph, arch)


def _whole(estimates: Sequence[Estimate], graph: NestGraph, arch: Arch) -> float:
    calls = (step for step in graph.steps if isinstance(step, HostNode))
    return sum(in_turn(estimates)) + sum(host_cycles(call, graph.tensors, arch) for call in calls)
