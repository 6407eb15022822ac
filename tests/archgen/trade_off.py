"""A toolchain whose machines have a trade-off that can be computed by hand, and its cost model.

Programs, checks and areas are those of `host_only`; the time is a formula of memory and multipliers
with a ripple in it, so that larger machines are not always quicker.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import onnx
from host_only import LOG, as_it_is, compile_host_only

from archgen.studies.run import Estimator
from archgen.toolchain import Request, Toolchain, execute
from compiler.api import NetworkEstimate
from compiler.options import Stages
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate
from simmodel.metrics import Metrics, measure
from simmodel.program.program import Program
from simmodel.trace import Trace

KIB = 1024


def cycles_of(arch: Arch) -> int:
    """What a run takes: less with more memory and multipliers, but for a ripple."""
    size = arch.memories.local.size // KIB
    ripple = 1.3 if (size // 64) % 3 == 0 else 1.0
    return round(ripple * (400_000 / arch.matrix.cols + 2_000_000 / size))


def measure_trade_off(trace: Trace, program: Program, arch: Arch, batch: int) -> Metrics:
    """Metrics of the run, its time replaced by the formula."""
    cycles = cycles_of(arch)
    seconds = cycles / arch.clock
    found = measure(trace, program, arch, batch)
    return replace(
        found, latency_cycles=cycles, latency_ms=1e3 * seconds, throughput=batch / seconds
    )


def estimate_right(request: Request) -> NetworkEstimate:
    """A cost model that is never wrong."""
    if log := os.environ.get(LOG):
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"estimate {request.arch.name}\n")
    return NetworkEstimate(cycles_of(request.arch), 1)


def estimate_badly(request: Request) -> NetworkEstimate:
    """A cost model that is up to a third off, this way or that."""
    off = 1.33 if request.arch.matrix.cols % 16 else 0.75
    return NetworkEstimate(off * cycles_of(request.arch), 1)


def load(proto: onnx.ModelProto, name: str, stages: Stages) -> onnx.ModelProto:
    """Nothing."""
    return as_it_is(proto, name, stages)


TRADE_OFF = Toolchain(load, compile_host_only, execute, simulate, measure_trade_off)
RIGHT = Estimator(load, estimate_right)
OFF = Estimator(load, estimate_badly)
