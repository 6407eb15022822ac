"""What a network should take, before it is run."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.attainable import Attainable
from compiler.cost.host import host_cycles
from compiler.driver import CompileResult
from compiler.nest.ir import HostNode
from compiler.schedule import in_turn
from simmodel.arch import Arch


@dataclass(frozen=True)
class NetworkEstimate:
    """Of one inference of the whole batch."""

    cycles: float
    """Of its groups, and of the host's calls between them."""
    host_ops: int
    bound: Attainable | None = None
    """What no schedule undercuts; None where nobody asked."""


def expected(result: CompileResult, arch: Arch) -> float:
    """Cycles that the program of `result` should take on `arch`.

    Raises ValueError for a result that has lost its search.
    """
    if result.search is None:
        raise ValueError("this result does not say what it was chosen among")
    estimates = [made.schedule.estimate for made in result.decisions]
    graph = result.search.graph
    calls = (step for step in graph.steps if isinstance(step, HostNode))
    return sum(in_turn(estimates)) + sum(host_cycles(call, graph.tensors, arch) for call in calls)
