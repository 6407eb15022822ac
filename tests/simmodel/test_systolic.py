"""Compute cycles of systolic arrays against SCALE-Sim, layer by layer, exactly.

The figures are the compute cycles of SCALE-Sim 3.0.0 (Samajdar et al., ISPASS 2020) for the 54
layers of ResNet-50 v1.5 with valid output sizes on square arrays: run, or by its own counting rule,
which 225 runs confirmed without a difference. Folds never overlap there, and its total is one less
than the number of cycles.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from programs import KIB, box, machine, memories, program

from simmodel.arch.matrix_cycles import depthwise_cycles, product_cycles
from simmodel.isa import Conv, DepthwiseConv, Gemm, Instruction
from simmodel.machine.run import simulate

DATAFLOWS = ("output-stationary", "weight-stationary", "input-stationary")
COLUMNS = [(dataflow, size) for dataflow in DATAFLOWS for size in (32, 128)]
# layer, how many layers have its shape, output pixels M, filters N, window K, total cycles of
# OS 32x32, OS 128x128, WS 32x32, WS 128x128, IS 32x32, IS 128x128.
TABLE = """
    conv1_7x7s2         1  12544    64   147   163855    39297   126379    25851   309679    87415
    c2_1a_1x1           1   3136    64    64    24695     7949    12919     3517    30967    11149
    c2_1b_3x3           3   3136    64   576   125047    20749   116279    17589   278711    55749
    c2_1c_1x1           4   3136   256    64    98783    15899    51679     7035    68599    15949
    c2_2a_1x1           2   3136    64   256    62327    12749    51679     7035   123871    22299
    c3_1a_1x1           1   3136   128   256   124655    12749   103359     7035   174047    25499
    c3_1b_3x3s2         4    784   128  1152   121399     9841   126431    10493   199799    32129
    c3_1c_1x1           4    784   512   128    75999    10695    56191     4663    60599     6257
    c3_1s_1x1s2         1    784   512   256   127199    14279   112383     9327   121199    12515
    c3_2a_1x1           3    784   128   512    57399     5361    56191     4663    88799    14279
    c4_1a_1x1           1    784   256   512   114799    10723   112383     9327   139999    17863
    c4_1b_3x3s2         6    196   256  2304   132495    10231   167039    20807   176399    22967
    c4_1c_1x1           6    196  1024   256    71231     8159    74239     9247    62607     5623
    c4_1s_1x1s2         1    196  1024   512   128575    12255   148479    18495   125215    11247
    c4_2a_1x1           5    196   256  1024    60815     5111    74239     9247    78399    10207
    c5_1a_1x1           1    196   512  1024   121631    10223   148479    18495   135743    14303
    c5_1b_3x3s2         3     49   512  4608   149439    19447   329471    62063   174527    32183
    c5_1c_1x1           3     49  2048   512    73471    12255   146431    27583    68543     9719
    c5_1s_1x1s2         1     49  2048  1024   139007    20447   292863    55167   137087    19439
    c5_2a_1x1           2     49   512  2048    67519     9207   146431    27583    77567    14303
    fc1000              1      1  1000  2048    67519    18415   194559    49023    70015    22111
"""
LAYERS = [line.split() for line in TABLE.split("\n") if line]


def test_the_table_is_the_whole_network() -> None:
    assert sum(int(layer[1]) for layer in LAYERS) == 54


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer[0])
def test_cycles_are_those_of_scale_sim(layer: list[str]) -> None:
    m, n, k, *totals = (int(figure) for figure in layer[2:])
    for (dataflow, size), total in zip(COLUMNS, totals, strict=True):
        arch = machine(matrix=array(dataflow, size))
        assert product_cycles(arch.matrix, "int8", m, n, k) - 1 == total


def array(dataflow: str, size: int, overlap: bool = False) -> dict[str, object]:
    """A square systolic array."""
    shape = {"kind": "systolic", "rows": size, "cols": size, "depth": 1}
    return {**shape, "dataflow": dataflow, "fold_overlap": overlap}


def product(m: int, n: int, k: int) -> Gemm:
    """One instruction for the whole product."""
    a, w = box("local", 0, 1, 1, m, k), box("local", m * k, k, n)
    return Gemm(engine="matrix", a=a, w=w, dst=box("local", m * k + k * n, 1, 1, m, n))


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_simulated_time_is_the_formula_where_nothing_contends(dataflow: str) -> None:
    wide = memories(local={"banks": 64, "bank_width": 64, "size": 8192 * KIB})
    arch = machine(matrix=array(dataflow, 32), memories=wide)
    column = COLUMNS.index((dataflow, 32))
    for layer in LAYERS[-3:]:
        m, n, k, *totals = (int(figure) for figure in layer[2:])
        trace = simulate(program((product(m, n, k),)), arch)
        assert trace.cycles - 1 == totals[column]


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_overlapping_folds_hide_the_loading_of_the_next(dataflow: str) -> None:
    # One fold costs the same; of several, all but one cost only their streaming time.
    plain = machine(matrix=array(dataflow, 32)).matrix
    overlapped = machine(matrix=array(dataflow, 32, overlap=True)).matrix
    one = product_cycles(plain, "int8", 32, 32, 32)
    assert product_cycles(overlapped, "int8", 32, 32, 32) == one
    streamed = {"output-stationary": (64, 64, 100), "weight-stationary": (100, 64, 64)}
    m, n, k = streamed.get(dataflow, (64, 100, 64))
    fold = product_cycles(plain, "int8", m, n, k) // 4
    assert product_cycles(overlapped, "int8", m, n, k) == 3 * 100 + fold


def convolution(pixels: int, n: int, k: int) -> Conv:
    """One instruction for 1 x 1 kernels."""
    a, w = box("local", 0, 1, 1, pixels, k), box("local", pixels * k, 1, 1, k, n)
    dst = box("local", pixels * k + k * n, 1, 1, pixels, n)
    return Conv(engine="matrix", a=a, w=w, dst=dst)


@pytest.mark.parametrize(("make", "grain"), [(product, "gemm"), (convolution, "conv")])
def test_folds_of_neighbours_overlap_as_those_of_one_product(
    make: Callable[[int, int, int], Instruction], grain: str
) -> None:
    wide = memories(local={"banks": 64, "bank_width": 64, "size": 8192 * KIB})
    matrix = {**array("weight-stationary", 32, overlap=True), "granularity": grain}
    arch = machine(matrix=matrix, memories=wide)
    # 2 x 2 folds of load 32, stream 100, and 62 to fill and drain: 3 x 100 + 194, then 4 x 100.
    once = make(100, 64, 64)
    assert (once.cycles(arch), once.overlap(arch)) == (494, 94)
    assert simulate(program((once, once, once)), arch).cycles == 494 + 400 + 400
    apart = machine(matrix={**matrix, "fold_overlap": False}, memories=wide)
    assert simulate(program((once, once)), apart).cycles == 2 * 4 * 194


def depthwise(size: int, channels: int, kernel: int) -> DepthwiseConv:
    """One instruction for size x size output pixels."""
    wide = size + kernel - 1
    a = box("local", 0, 1, wide, wide, channels)
    w = box("local", 32 * KIB, kernel, kernel, channels)
    dst = box("local", 40 * KIB, 1, size, size, channels)
    return DepthwiseConv(engine="matrix", a=a, w=w, dst=dst)


@pytest.mark.parametrize(
    ("dataflow", "cycles"),
    [
        # 32 rows have room for the 9 taps of 3 channels: 22 folds of load 32, stream 100 pixels,
        # and 32 + 32 - 2 to fill and drain.
        ("weight-stationary", 22 * (32 + 100 + 62)),
        # The same 22 sets of 3 channels, each for 4 sets of 32 of the 100 pixels; stream 3 kernels.
        ("input-stationary", 22 * 4 * (32 + 3 + 62)),
        # 2 sets of 32 channels, 4 sets of 32 pixels; the 9 taps of 32 channels pass by.
        ("output-stationary", 2 * 4 * (32 * 9 + 62)),
    ],
)
def test_each_channel_of_a_depthwise_product_has_rows_of_its_own(
    dataflow: str, cycles: int
) -> None:
    wide = memories(local={"banks": 64, "bank_width": 64})
    arch = machine(matrix={**array(dataflow, 32), "depthwise": True}, memories=wide)
    assert depthwise_cycles(arch.matrix, "int8", 100, 64, 9) == cycles
    assert simulate(program((depthwise(10, 64, 3),)), arch).cycles == cycles
    # Without im2col every position is a fold of its own, of one row for each channel.
    bare = machine(matrix={**array(dataflow, 32), "depthwise": True, "im2col": False}).matrix
    single = depthwise_cycles(bare, "int8", 100, 64, 1)
    assert depthwise_cycles(bare, "int8", 100, 64, 9) == 9 * single


def test_an_array_that_keeps_up_four_fifths_of_its_peak_takes_five_fourths_of_the_cycles() -> None:
    array_ = {**array("weight-stationary", 32), "depthwise": True}
    whole, slow = (machine(matrix={**array_, "sustained": kept}).matrix for kept in (1.0, 0.8))
    assert (
        product_cycles(slow, "int8", 64, 64, 64) == product_cycles(whole, "int8", 64, 64, 64) / 0.8
    )
    assert depthwise_cycles(slow, "int8", 100, 64, 9) == 22 * (32 + 100 + 62) / 0.8
