"""Operators that no engine of the machine can run become calls to the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from compiler.errors import UnsupportedModel
from compiler.nest.ir import HostNode, Nest, NestGraph
from compiler.tile.machine import unsupported
from simmodel.arch import Arch

Fallback = Callable[[Nest], HostNode | None]
"""Makes the host's version of a nest, or None when it has none."""


@dataclass(frozen=True)
class PlaceOnHost:
    """Replace nests that `arch` cannot run by host nodes.

    before:
        s[d0] = exp(x[d0])                     the vector engine has int8 only
    after:
        s = host Exp(x)
    """

    allowed: bool = True
    """False: such an operator is an error."""

    def apply(self, graph: NestGraph, arch: Arch, fallback: Fallback) -> NestGraph:
        """`graph` with only nests that `arch` runs.

        Raises:
            UnsupportedModel: all operators that can run nowhere, or that may not run on the host.
        """
        steps: list[Nest | HostNode] = []
        refused: list[str] = []
        for step in graph.steps:
            if isinstance(step, HostNode):
                if not self.allowed:
                    refused.append(f"{step.origin} ({step.kind}): {step.reason}")
                steps.append(step)
                continue
            reason = unsupported(step, graph.tensors, arch)
            if reason is None:
                steps.append(step)
                continue
            host = fallback(replace(step)) if self.allowed else None
            if host is None:
                refused.append(f"{step.origin} ({step.kind}): {reason}")
                continue
            steps.append(replace(host, reason=reason))
        if refused:
            raise UnsupportedModel(
                f"{len(refused)} operators cannot run on {arch.name}:\n  " + "\n  ".join(refused)
            )
        return replace(graph, steps=tuple(steps))
