"""Whole programs of one layer against closed forms: memory is free, so nothing contends.

The array's cycles are those of SCALE-Sim 3.0.0 (Samajdar et al., ISPASS 2020), whose total is one
less than their number; of a cube, one cycle for each block of rows, columns and depth. Of the
vector engine what is expected is what its instructions take, one by one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from blocks import conv
from machines import changed, machine
from networks import Net

from compiler.api import CompileOptions, compile_model
from simmodel.arch.matrix_cycles import product_cycles
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate

DATAFLOWS = ("output-stationary", "weight-stationary", "input-stationary")
LAYERS = {
    # Output pixels, filters, window: cycles on 32 x 32 with outputs, weights, inputs in place.
    (784, 256, 512): (114799, 112383, 139999),
    (196, 1024, 256): (71231, 74239, 62607),
    (49, 512, 2048): (67519, 146431, 77567),
    (1, 1000, 2048): (67519, 194559, 70015),
}


def free(matrix: dict[str, Any]) -> Arch:
    """A machine on which memory takes no time to speak of."""
    arch = machine(
        types=("fp16",), latency=0, copy={"bandwidth": "1 MiB/cycle"},
        local={"size": 1 << 24, "banks": 64, "bank_width": 1024},
        matrix=matrix | {"writeback": ["bias", "clip", "requantize"], "rate": {"fp16": 1.0}},
    )  # fmt: skip
    return changed(arch, "memories.dram", bandwidth=arch.copy_["load"].bandwidth)


def busy(arch: Arch, m: int, n: int, k: int) -> tuple[int, int]:
    """Cycles of the matrix engine, and of the whole program, for one product."""
    net = Net()
    y = net.op("MatMul", net.input(m, k), net.weight(k, n))
    program = compile_model(net.model(y), arch, CompileOptions(dtype="fp16")).program
    trace = simulate(program, arch)
    (engine,) = (engine for engine in trace.engines if engine.engine == "matrix")
    return engine.busy, trace.cycles


@pytest.mark.parametrize("layer", list(LAYERS))
@pytest.mark.parametrize("dataflow", DATAFLOWS)
@pytest.mark.parametrize("grain", ["gemm", "conv"])
def test_programs_keep_systolic_arrays_busy_as_long_as_scale_sim_says(
    dataflow: str, grain: str, layer: tuple[int, int, int]
) -> None:
    shape = {"kind": "systolic", "rows": 32, "cols": 32, "depth": 1, "fold_overlap": False}
    arch = free({**shape, "dataflow": dataflow, "granularity": grain})
    cycles, total = busy(arch, *layer)
    assert cycles == LAYERS[layer][DATAFLOWS.index(dataflow)] + 1
    assert total - cycles <= 0.02 * cycles


@pytest.mark.parametrize("grain", ["gemm", "conv"])
@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_pixels_of_a_batch_fill_the_array_as_those_of_one_large_image_do(
    dataflow: str, grain: str
) -> None:
    shape = {"kind": "systolic", "rows": 32, "cols": 32, "depth": 1, "fold_overlap": False}
    bare = {"im2col": False, "overlap": False}
    arch = free({**shape, **bare, "dataflow": dataflow, "granularity": grain})
    net = Net()
    y = conv(net, net.input(16, 64, 9, 9), 2048, (3, 3), pads=(0, 0, 0, 0), bias=False)
    program = compile_model(net.model(y), arch, CompileOptions(dtype="fp16")).program
    (engine,) = (e for e in simulate(program, arch).engines if e.engine == "matrix")
    apart = 9 if grain == "gemm" else 1  # a product for each position of the kernel
    joined, single = (
        apart * product_cycles(arch.matrix, "fp16", pixels, 2048, 64, 9 // apart)
        for pixels in (16 * 49, 49)
    )
    assert 16 * single >= 1.25 * joined
    # Loads may be worth a second piece of the batch.
    assert joined <= engine.busy <= 1.08 * joined


@pytest.mark.parametrize("grain", ["tile", "gemm", "conv"])
def test_programs_keep_cubes_busy_for_one_cycle_a_block(grain: str) -> None:
    arch = free({"kind": "cube", "rows": 8, "cols": 16, "depth": 32, "granularity": grain})
    m, n, k = 196, 200, 300
    cycles, total = busy(arch, m, n, k)
    assert cycles == math.ceil(m / 8) * math.ceil(n / 16) * math.ceil(k / 32)
    assert total - cycles <= 0.05 * cycles


ENGINES: dict[str, dict[str, Any]] = {
    "three dimensions": {"rank": 3},
    "one dimension": {"rank": 1},
    "short rows": {"rank": 2, "max_extent": 24},
    "no windows": {"rank": 3, "window": False},
    "narrow for wide types": {"rank": 3, "wide_lanes": 4},
}


def engine(kind: str, latency: int = 3) -> Arch:
    """A machine without a fast path: all but products is for its vector engine."""
    return machine(
        types=("fp32",), latency=0, copy={"bandwidth": "1 MiB/cycle"},
        local={"size": 1 << 20, "banks": 64, "bank_width": 512, "latency": f"{latency} cycles"},
        vector={"lanes": 16, "startup": "7 cycles", "types": ["fp32", "int32"]} | ENGINES[kind],
    )  # fmt: skip


def layers() -> dict[str, Any]:
    """Networks of one layer each."""
    nets = {name: Net() for name in ("window", "pool", "sum", "bias", "plain")}
    x = {name: net.input(1, 24, 10, 10) for name, net in nets.items()}
    weights = nets["window"].weight(24, 1, 3, 3), nets["window"].weight(24)
    ends = {
        "window": nets["window"].op("Conv", x["window"], *weights, pads=[1] * 4, group=24),
        "pool": nets["pool"].op("MaxPool", x["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        "sum": nets["sum"].op("ReduceSum", x["sum"], nets["sum"].const([2, 3], np.int64)),
        "bias": nets["bias"].op("Add", x["bias"], nets["bias"].weight(24, 1, 1)),
        "plain": nets["plain"].op("Sqrt", x["plain"]),
    }
    return {name: net.model(ends[name]) for name, net in nets.items()}


@pytest.mark.parametrize("kind", list(ENGINES))
@pytest.mark.parametrize("layer", ["window", "pool", "sum", "bias", "plain"])
def test_every_instruction_pays_its_start_up_and_its_rows(kind: str, layer: str) -> None:
    arch = engine(kind)
    made = compile_model(layers()[layer], arch, CompileOptions(dtype="fp32"))
    expected = sum(decision.schedule.estimate.vector for decision in made.decisions)
    (vector,) = (e for e in simulate(made.program, arch).engines if e.engine == "vector")
    assert expected == pytest.approx(vector.busy, rel=0.02)


def test_a_group_of_other_layers_than_products_leaves_the_array_alone() -> None:
    net = Net()
    x = net.input(1, 24, 20, 20)
    for _ in range(2):
        x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    arch = engine("three dimensions")
    made = compile_model(net.model(x), arch, CompileOptions(dtype="fp32"))
    (decision,) = made.decisions
    busy = {each.engine: each.busy for each in simulate(made.program, arch).engines}
    estimate = decision.schedule.estimate
    assert (estimate.matrix, estimate.vector) == (busy["matrix"], busy["vector"])
    assert len(decision.group.layers) == 2 and busy["matrix"] == 0
