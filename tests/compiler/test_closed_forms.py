"""Whole programs of one layer against closed forms: memory is free, so nothing contends.

The array's cycles are those of SCALE-Sim 3.0.0 (Samajdar et al., ISPASS 2020), whose total is one
less than their number; of a cube, one cycle for each block of rows, columns and depth.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from blocks import conv
from machines import machine
from networks import Net

from compiler.api import CompileOptions, compile_model
from simmodel.arch.record import Arch
from simmodel.isa.contraction import product_cycles
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
    rate = arch.copy_["load"].bandwidth
    dram = arch.memories.dram.model_copy(update={"bandwidth": rate})
    return arch.model_copy(update={"memories": arch.memories.model_copy(update={"dram": dram})})


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
