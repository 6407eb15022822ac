"""What the compiler's cost model says of a point, before there is a program.

The one idea: an estimate is an outcome like any other, with status `estimated` and its figures in
the columns of measured ones, so that stores, workers and comparisons need not know the difference.
It proves nothing: what counts is compiled, executed, checked and simulated afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import onnx

from archgen.energy import costs_of
from archgen.outcomes.estimated import ESTIMATED
from archgen.outcomes.points import Outcome, Point, Row
from archgen.outcomes.rows import area_row, bound_row, merit_row
from archgen.process.cache import content_hash
from archgen.studies.prepare import Models
from archgen.studies.run import answered
from archgen.toolchain import Request
from compiler.api import CompileOptions, NetworkEstimate, QuickEstimator, Stages, prepared

EFFORT = 0
"""How long the compiler searches for an estimate."""


@dataclass(frozen=True)
class Estimator:
    """A compiler as far as its cost model."""

    load: Callable[[onnx.ModelProto, str, Stages], Any]
    """As that of a toolchain."""
    estimate: Callable[[Request], NetworkEstimate]
    """Raises CompilerError where the machine is refused."""
    name: str = "estimated"
    """What keeps its outcomes apart from those of others."""


def quick_estimate(request: Request) -> NetworkEstimate:
    """What `request` should take, layer by layer, without any schedule. CompilerError where an
    operator can run nowhere."""
    stages = replace(request.scheduling, effort=EFFORT).stages
    network: QuickEstimator = request.model
    return network.on(request.arch, CompileOptions(request.dtype, request.host, stages))


def quick_estimator(proto: onnx.ModelProto, name: str, stages: Stages) -> QuickEstimator:
    """A network that keeps what its estimates on several machines share."""
    return QuickEstimator(prepared(proto, name, stages))


OUTLOOK = Estimator(quick_estimator, quick_estimate, "outlook")
"""Layers are priced one by one: a fraction of a second."""


def to_estimate(point: Point, by: Estimator) -> Point:
    """`point` as `by` estimates it: a point of its own, which shares nothing with the run, and at
    its own sizes also where its program is for more."""
    return replace(
        point,
        key=content_hash({by.name: point.key}),
        verify=False,
        trace=False,
        ranges=(),
    )


class EstimateBench:
    """Estimates points one after the other and keeps the last models that they needed."""

    def __init__(self, tools: Estimator) -> None:
        self.tools = tools
        self._models = Models(tools.load)

    def run(self, point: Point) -> Outcome:
        """What is to be expected of `point`; never raises for anything about the point itself."""
        return answered(point, lambda: self._estimate_point(point))

    def _estimate_point(self, point: Point) -> Outcome:
        arch, kept = point.arch, self._models.of(point)
        name = kept.model.name
        request = Request(name, kept.loaded, arch, point.dtype, point.host, point.scheduling)
        found = self.tools.estimate(request)
        milliseconds = found.cycles / arch.clock * 1e3
        row: Row = {
            **point.identity(),
            "status": ESTIMATED,
            "latency_cycles": round(found.cycles),
            "latency_ms": milliseconds,
            "throughput_ips": point.batch / milliseconds * 1e3 if milliseconds else None,
            "host_ops": found.host_ops,
            **bound_row(found.bound, round(found.cycles)),
            **area_row(costs_of(arch).area),
        }
        return Outcome(point.key, point.label, row | merit_row(row))
