"""Kernel columns in the reduction of few channels: where the operand may overlap in memory.

Cycles by hand, on a cube that takes ten pixels, all filters and 32 products of each in a cycle: 100
pixels take ten cycles for every 32 that are added up. It is 16384 times slower than that, so that
memory does not matter.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine, machines
from networks import Net, check, refused
from test_closed_forms import free

from archgen.check.reference import run_reference
from compiler.api import CompileOptions, CompileResult, compile_model
from compiler.errors import DoesNotFit, UnsupportedModel
from compiler.explain.report import report
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.machine.run import simulate
from simmodel.program.assembly import print_program
from simmodel.verify import verify

SLOW = 1 << 14
STEP = 10 * SLOW
CUBE = {"kind": "cube", "rows": 10, "cols": 32, "depth": 32}
CASES: dict[str, tuple[int, dict[str, Any], bool, int]] = {
    # 16 channels, 3 x 3: nine products of 16, or three of 48, which are two steps each.
    "apart": (16, {"kernel_shape": [3, 3], "pads": [1] * 4}, False, 9),
    "joined": (16, {"kernel_shape": [3, 3], "pads": [1] * 4}, True, 3 * 2),
    # Three channels join as well, though planes would be as good for products: three of 9.
    "few": (3, {"kernel_shape": [3, 3], "pads": [1] * 4}, True, 3),
    # Positions two pixels apart do not lie side by side.
    "dilated": (16, {"kernel_shape": [3, 3], "pads": [2] * 4, "dilations": [2, 2]}, True, 9),
    # Rows of windows that begin two pixels apart: strides of the operand, all the same.
    "strided": (16, {"kernel_shape": [3, 5], "pads": [6, 7, 6, 6], "strides": [2, 2]}, True, 9),
    "column": (16, {"kernel_shape": [3, 1], "pads": [1, 0, 1, 0]}, True, 3),
}


def slowed(arch: Arch) -> Arch:
    """`arch` with an engine that takes 16384 times as long."""
    matrix = arch.matrix.model_copy(update={"rate": {"fp16": 1 / SLOW}})
    return arch.model_copy(update={"matrix": matrix})


def convolved(arch: Arch, channels: int, attributes: dict[str, Any]) -> tuple[CompileResult, float]:
    """32 filters over 10 x 10 pixels, right and verified, and how long the matrix engine works."""
    net = Net()
    weight = net.weight(32, channels, *attributes["kernel_shape"])
    model = net.model(net.op("Conv", net.input(1, channels, 10, 10), weight, **attributes))
    result = compile_model(model, arch, CompileOptions(dtype="fp16"))
    verify(result.program, arch)
    (engine,) = (e for e in simulate(result.program, arch).engines if e.engine == "matrix")
    x = net.rng.standard_normal((1, channels, 10, 10)).astype(np.float32)
    (expected,) = run_reference(model, {"x0": x}).values()
    (found,) = execute(result.program, {"x0": x}, arch).values()
    np.testing.assert_allclose(found, expected, rtol=5e-3, atol=5e-3)
    return result, engine.busy


@pytest.mark.parametrize("grain", ["gemm", "tile"])
@pytest.mark.parametrize("case", list(CASES))
def test_columns_of_a_kernel_row_are_one_reduction(case: str, grain: str) -> None:
    channels, attributes, overlap, steps = CASES[case]
    arch = slowed(free({**CUBE, "granularity": grain, "overlap": overlap}))
    result, busy = convolved(arch, channels, attributes)
    assert busy == steps * STEP
    if grain == "gemm":
        (decision,) = result.decisions
        assert decision.schedule.layers[0].estimate.matrix == busy


ROWS: dict[str, tuple[int, dict[str, Any], int]] = {
    # Windows of a row are one reduction where that takes fewer steps of 32: 3 x 9 ...
    "few": (3, {"kernel_shape": [3, 3], "pads": [1] * 4}, 3),
    # ... 3 x 48 in two steps, against nine of 16 ...
    "half": (16, {"kernel_shape": [3, 3], "pads": [1] * 4}, 3 * 2),
    # ... but 96 in three steps are three positions of 32.
    "full": (32, {"kernel_shape": [3, 3], "pads": [1] * 4}, 9),
    "dilated": (3, {"kernel_shape": [3, 3], "pads": [2] * 4, "dilations": [2, 2]}, 9),
    "rows": (3, {"kernel_shape": [3, 3], "pads": [2, 1, 2, 1], "dilations": [2, 1]}, 3),
    "strided": (3, {"kernel_shape": [3, 5], "pads": [6, 7, 6, 6], "strides": [2, 2]}, 3),
}


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("case", list(ROWS))
def test_convolutions_whose_positions_come_one_by_one_join_few_channels(
    case: str, overlap: bool
) -> None:
    channels, attributes, steps = ROWS[case]
    bare = {"im2col": False, "overlap": overlap, "granularity": "conv"}
    arch = slowed(free({**CUBE, **bare}))
    result, busy = convolved(arch, channels, attributes)
    (decision,) = result.decisions
    assert decision.schedule.layers[0].estimate.matrix == busy
    assert busy == (steps if overlap else math.prod(attributes["kernel_shape"])) * STEP
    (layer,) = report(result, arch)[0].layers
    assert (" j x c" in layer.array) == (overlap and case not in ("full", "dilated"))


def test_blocks_of_a_convolution_whose_reduction_is_cut_add_to_their_own_sums() -> None:
    """Weights of 64 channels are 18 KiB, more than the memory holds at a time."""
    cube = {"kind": "cube", "rows": 4, "cols": 16, "depth": 16, "im2col": False}
    arch = machine(
        types=("fp16",), local={"size": 12 << 10, "banks": 4, "bank_width": 16},
        matrix={**cube, "granularity": "conv", "max_pixels": 4},
    )  # fmt: skip
    net = Net()
    made = net.op("Conv", net.input(1, 64, 6, 6), net.weight(16, 64, 3, 3), pads=[1] * 4)
    checked = check(net.model(made), arch, "fp16")
    lines = print_program(checked.compiled.program).splitlines()
    pieces = [line for line in lines if "matrix.conv" in line]
    assert {"partial=" in piece for piece in pieces} == {True, False}
    assert len({re.sub(r".* (dst=\S+).*", r"\1", piece) for piece in pieces}) > 1


@st.composite
def stems(draw: st.DrawFn, quantized: bool) -> onnx.ModelProto:
    """One or two convolutions of few channels."""
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    net = Net(quantized, draw(st.integers(0, 9)))
    x = net.input(pick(1, 1, 2), pick(1, 2, 3, 5, 8), pick(7, 10), pick(8, 13))
    for _ in range(pick(1, 2)):
        (_, channels, _, wide), kernel = net.shapes[x], (pick(1, 2, 3), pick(2, 3, 5))
        apart = pick(1, 1, 1, 2) if wide > 2 * kernel[1] else 1
        weight = net.weight(pick(1, 4, 6, 20), channels, *kernel)
        x = net.op(
            "Conv", x, weight, kernel_shape=kernel, pads=[k // 2 for k in kernel] * 2,
            strides=[pick(1, 2), pick(1, 1, 2)], dilations=[1, apart],
        )  # fmt: skip
    return net.model(x)


@settings(max_examples=20)
@given(data=st.data())
def test_few_channels_on_any_machine(data: st.DataObject) -> None:
    arch = data.draw(machines())
    dtype = data.draw(st.sampled_from(arch.types))
    model = data.draw(stems(quantized=dtype == "int8"))
    try:
        check(model, arch, dtype)
    except (DoesNotFit, UnsupportedModel) as why:
        refused(why)
