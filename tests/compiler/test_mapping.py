"""Kernel columns in the reduction of few channels: where the operand may overlap in memory; kernel
rows beside them, where a copy lays them side by side; and sums that are split along the rows of a
kernel.

Cycles by hand, on a cube that takes ten pixels, all filters and 32 products of each in a cycle: 100
pixels take ten cycles for every 32 that are added up. It is 16384 times slower than that, so that
memory does not matter.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from blocks import conv
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import SYSTOLIC, changed, machine, machines
from networks import Checked, Net, array_cycles, check, may_be_refused
from test_closed_forms import free

from archgen.check.reference import run_reference
from compiler.api import CompileOptions, CompileResult, compile_model, prepared
from compiler.cost.multicast import Cores
from compiler.cost.work import array_work
from compiler.decisions.text.extract import extract_tree
from compiler.decisions.text.text import TreeError, parse_tree, print_tree
from compiler.errors import DoesNotFit, UnsupportedModel
from compiler.explain.report import report
from compiler.lowering.lower import lower
from compiler.options import Stages
from compiler.schedule.tiling.layer_price import price
from compiler.schedule.tiling.problem import TilingProblem
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import TileLoop
from compiler.target import fill_columns
from compiler.target.array_mapping import pixels_together, roles
from compiler.target.bind import Bind
from compiler.target.fill_columns import FillColumns
from compiler.target.join_kernel_rows import JoinKernelRows
from compiler.target.layout import few_channels, innermost_axes, joined_tap, packed_order
from compiler.target.machine import slots_of_sums
from compiler.target.product_tiles import TileSizes
from compiler.tensor_ir.nest import Nest
from simmodel.arch.matrix_cycles import product_cycles, whole_tiles
from simmodel.arch.record import Arch, Winograd
from simmodel.execute import execute
from simmodel.isa import MatrixInstruction
from simmodel.isa.base import instructions
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
    # Where columns do not join, rows of few channels do: lines of three channels beside each other.
    "lines": (3, {"kernel_shape": [3, 1], "pads": [1, 0, 1, 0]}, True, 1),
    "wide": (3, {"kernel_shape": [3, 3], "pads": [1, 2, 1, 2], "dilations": [1, 2]}, True, 3),
}


def slowed(arch: Arch) -> Arch:
    """`arch` with an engine that takes 16384 times as long."""
    return changed(arch, "matrix", rate={"fp16": 1 / SLOW})


def convolved(
    arch: Arch, channels: int, attributes: dict[str, Any], *, filters: int = 32, rows: bool = False,
    columns: bool = True,
) -> tuple[CompileResult, float]:  # fmt: skip
    """`filters` over 10 x 10 pixels, right and verified, and how long the matrix engine works;
    `rows`: kernel rows, `columns`: pixels, may be laid side by side. Of few filters maxima go on:
    what stays inside the network has channels last."""
    net = Net()
    weight = net.weight(filters, channels, *attributes["kernel_shape"])
    y = net.op("Conv", net.input(1, channels, 10, 10), weight, **attributes)
    if filters < 32:
        y = net.op("MaxPool", y, kernel_shape=[2, 2])
    model = net.model(y)
    stages = Stages(kernel_rows=JoinKernelRows(enabled=rows), columns=FillColumns(enabled=columns))
    result = compile_model(model, arch, CompileOptions(dtype="fp16", stages=stages))
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


WHOLE: dict[str, tuple[int, dict[str, Any], int]] = {
    # 3 x 9 products are one step of 27, 3 x 48 in two steps each are five of 144 in all.
    "few": (3, {"kernel_shape": [3, 3], "pads": [1] * 4}, 1),
    "half": (16, {"kernel_shape": [3, 3], "pads": [1] * 4}, 5),
    "strided": (3, {"kernel_shape": [3, 5], "pads": [6, 7, 6, 6], "strides": [2, 2]}, 2),
    "column": (3, {"kernel_shape": [3, 1], "pads": [1, 0, 1, 0]}, 1),  # without a copy
    # Rows two lines apart are copied like others, columns two pixels apart do not join.
    "lines": (3, {"kernel_shape": [3, 3], "pads": [2, 1, 2, 1], "dilations": [2, 1]}, 1),
    "dilated": (3, {"kernel_shape": [3, 3], "pads": [2] * 4, "dilations": [2, 2]}, 9),
}


@pytest.mark.parametrize("grain", ["gemm", "tile"])
@pytest.mark.parametrize("case", list(WHOLE))
def test_rows_of_a_kernel_are_one_reduction_behind_a_copy(case: str, grain: str) -> None:
    channels, attributes, steps = WHOLE[case]
    arch = slowed(free({**CUBE, "granularity": grain}))
    assert convolved(arch, channels, attributes, rows=True)[1] == steps * STEP
    quick = machine(types=("fp16",), matrix={**CUBE, "granularity": grain})
    apart, offered = (convolved(quick, channels, attributes, rows=rows) for rows in (False, True))
    assert apart[1] == offered[1], "the copy would take longer"


FREE: dict[str, tuple[int, dict[str, Any], int]] = {
    # 2 pixels of 8 filters on 32 columns, as 4 do not divide a line: windows of 4 x 16, 2 steps
    # for each of 3 rows, of 5 blocks of pixels: 30 cycles, not 3 x 2 x 10.
    "two": (16, {"kernel_shape": [3, 3], "pads": [1] * 4}, 30),
    # Windows of (2 + 5) x 3, one step for each row, of half the pixels.
    "strided": (3, {"kernel_shape": [3, 5], "pads": [6, 7, 6, 6], "strides": [2, 2]}, 15),
    # Two windows of 16 fill the depth.
    "point": (16, {"kernel_shape": [1, 1]}, 5),
    # As they are: lines of 11 pixels, positions two pixels apart.
    "prime": (16, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 2]}, 3 * 2 * 11),
    "dilated": (16, {"kernel_shape": [3, 3], "pads": [2] * 4, "dilations": [2, 2]}, 9 * 10),
}


@pytest.mark.parametrize("grain", ["gemm", "tile"])
@pytest.mark.parametrize("case", list(FREE))
def test_pixels_stand_side_by_side_on_free_columns(case: str, grain: str) -> None:
    channels, attributes, cycles = FREE[case]
    matrix = {**CUBE, "granularity": grain}
    arch = changed(slowed(free(matrix)), "matrix", writeback=())
    assert convolved(arch, channels, attributes, filters=8)[1] == cycles * SLOW
    quick = machine(types=("fp16",), matrix=matrix | {"writeback": []})
    apart, offered = (
        convolved(quick, channels, attributes, filters=8, columns=columns)[1]
        for columns in (False, True)
    )
    assert apart == offered, "more weights would take longer"


@pytest.mark.parametrize(("ports", "again"), [(1, 2 * 96), (2, 96)])
def test_sums_pass_one_port_twice_where_products_add_to_them(ports: int, again: int) -> None:
    """Eight products of 96 pixels, whose memory moves all sums of one pixel in a cycle."""
    made = machine(accumulators=1 << 16, matrix=SYSTOLIC | {"granularity": "tile"})
    arch = changed(made, "memories.accumulators", ports=ports, bank_width=8)
    assert array_work(arch, "fp16", (96, 1), 4, 64).cycles == 96 + 7 * again


@settings(max_examples=20)
@given(data=st.data())
def test_any_pixels_side_by_side_compute_what_the_network_says(data: st.DataObject) -> None:
    """As many as divide a line, whatever it costs: weights that stay and are taken in slices of
    columns, lines in pieces, views with strides, sums that start from their bias."""

    def one_of(*values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    dtype = one_of("int8", "fp16", "fp32")
    cube = {"kind": "cube", "rows": 4, "cols": 32, "depth": 8}
    matrix = one_of(SYSTOLIC | {"rows": 16, "cols": 32}, cube) | {
        "granularity": one_of("tile", "gemm"), "max_pixels": one_of(None, 8, 64)
    }  # fmt: skip
    arch = machine(
        matrix=matrix, cores=one_of(1, 2, 3), weights=one_of(0, 8192),
        accumulators=one_of(4096, 65536), local={"size": one_of(1 << 15, 1 << 20)},
        sync=one_of("tokens", "interlock"),
    )  # fmt: skip
    net = Net(quantized=dtype == "int8")
    x = net.input(1, one_of(1, 3, 12), one_of(5, 12), one_of(8, 12, 20))
    window, stride = one_of((1, 1), (3, 3), (3, 2)), (one_of(1, 2), one_of(1, 2))
    x = conv(net, x, one_of(4, 8, 12), window, stride=stride, bias=one_of(True, False))
    model = net.model(net.op("MaxPool", x, kernel_shape=[2, 2]))

    def most_pixels(nest: Nest, *_: object) -> float:
        return -pixels_together(nest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fill_columns, "_cycles", most_pixels)
        with suppress(DoesNotFit, UnsupportedModel):
            check(model, arch, dtype)


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
    with may_be_refused():
        check(model, arch, dtype)


GEMM: dict[str, Any] = SYSTOLIC | {"granularity": "gemm"}
TILE: dict[str, Any] = SYSTOLIC | {"granularity": "tile", "max_pixels": 16}


def two(kernel: tuple[int, int], **attributes: Any) -> Net:
    """Two convolutions of 16 channels, the second as told."""
    net = Net()
    x = net.op("Conv", net.input(1, 8, 9, 9), net.weight(16, 8, 1, 1))
    net.op("Conv", x, net.weight(12, 16, *kernel), **attributes)
    return net


def by_hand(net: Net, arch: Arch, extra: str) -> None:
    """Compile with the last layer's loops replaced, execute, and compare with ONNX Runtime."""
    model = net.model(net.nodes[-1].output[0])
    options = CompileOptions(dtype="fp32")
    made = compile_model(prepared(model, "net"), arch, options)
    lines = print_tree(extract_tree("net", made.steps)).splitlines()
    last = max(n for n, line in enumerate(lines) if line.startswith("  layer"))
    lines[last] = f"{lines[last].split(':')[0]}: {extra}"
    check(model, arch, "fp32", replace(options, tree=parse_tree("\n".join(lines) + "\n")))


@pytest.mark.parametrize("array", [GEMM | {"overlap": False}, TILE])
@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ((3, 3), {"pads": [1, 1, 1, 1]}),
        ((3, 2), {"strides": [2, 1], "pads": [2, 0, 0, 0]}),
        ((2, 3), {"dilations": [3, 2]}),
        ((5, 1), {"pads": [2, 0, 2, 0]}),
    ],
)
@pytest.mark.parametrize("loops", ["for i 1", "for o 8; for c 6; for i 1"])
def test_kernel_rows_one_by_one(
    kernel: tuple[int, int], attributes: dict[str, Any], array: dict[str, Any], loops: str
) -> None:
    arch = machine(weights=8192, accumulators=8192, matrix=array)
    by_hand(two(kernel, **attributes), arch, loops)


def test_a_convolution_instruction_takes_the_whole_kernel() -> None:
    with pytest.raises(TreeError, match="the sum over i cannot be split"):
        by_hand(two((3, 3)), machine(), "for i 1")


def head_of(arch: Arch, net: Net) -> tuple[Layer, Nest]:
    graph = lower(prepared(net.model(net.nodes[-1].output[0]), "net"), "fp32")
    nests = tuple(step for step in graph.steps if isinstance(step, Nest))[-1:]
    layer = Bind().bound(Layer(0, nests, graph.tensors), arch)
    return layer, layer.head


def test_lines_of_few_channels_are_loaded_line_by_line() -> None:
    """An input of 3 x 40 x 40 in fp32 takes 1200 cycles at 16 B each and 20 before, and no longer
    in 120 lines; pixels of all channels are 4800 pieces, one per cycle. Kernel columns join the
    reduction of pixels, rows that of lines."""
    arch = machine(matrix=GEMM)
    net = Net()
    net.op("Conv", net.input(1, 3, 40, 40), net.weight(8, 3, 5, 3), pads=[2, 1, 2, 1])
    layer, head = head_of(arch, net)
    source = layer.tensors[head.operands[0].tensor]
    stored, pixels, lines = few_channels(source, head, arch)
    assert (stored.depth, pixels.depth, lines.depth) == (3, 3 * 3, 3 * 5)
    assert (stored.steps, pixels.steps, lines.steps) == (15, 5, 3)
    assert (stored.load, pixels.load, lines.load) == (1220, 4820, 1220)
    assert lines.innermost == innermost_axes(source, head, arch) == (1, 3)
    assert joined_tap(source, head, arch) == roles(head).taps[0]
    assert packed_order(layer, arch) == (3, 2, 1, 0)


def test_a_row_of_the_kernel_costs_a_third_of_the_weights() -> None:
    """3 x 3 positions of 16 x 12 weights in fp32 are 6912 B; two slots of a third are 4608 B."""
    arch = machine(weights=5120, accumulators=8192, matrix=GEMM | {"rows": 16, "cols": 12})
    layer, head = head_of(arch, two((3, 3)))
    found = roles(head)
    source = frozenset({head.operands[0].tensor})
    problem = TilingProblem(layer, arch, head.shape, Cores(1), 2, held=source)
    assert problem.rows == found.taps[0].dim
    b, y, x, n, k = (
        np.array([problem.extent(d)] * 2) for d in (found.b, found.y, found.x, found.col, found.k)
    )
    whole, row = np.broadcast_to(
        price(problem, TileSizes(b, y, x, n, k, np.array([3, 1]), np.zeros(2))).fits, (2,)
    )
    assert (whole, row) == (False, True)
    roomy = machine(weights=1 << 16, accumulators=8192, matrix=GEMM | {"rows": 16, "cols": 12})
    assert TilingProblem(layer, roomy, head.shape, Cores(1), 2, held=source).rows is None
    assert TilingProblem(layer, arch, head.shape, Cores(1), 2).rows is None  # which is loaded


def test_the_search_takes_rows_where_the_array_is_full_with_them() -> None:
    """A third of a kernel fills the array and its memory; all of it would be two columns wide."""
    wide = GEMM | {"rows": 32, "cols": 32, "dataflow": "weight-stationary", "fold_overlap": True}
    arch = machine(weights=1 << 13, accumulators=1 << 15, matrix=wide)
    net = Net(quantized=True)
    x = net.op("Conv", net.input(1, 32, 6, 6), net.weight(32, 32, 1, 1))
    x = net.op("Conv", x, net.weight(32, 32, 3, 3), pads=[1] * 4)
    made = check(net.model(x), arch, "int8").compiled
    loops = [loop for d in made.decisions for tiled in d.schedule.layers for loop in tiled.loops]
    assert any(isinstance(loop, TileLoop) and loop.reduction and loop.size == 1 for loop in loops)


def test_sums_have_one_slot_where_larger_tiles_load_less() -> None:
    """64 x 64 sums of 4 B are four times what the accumulators hold: in halves of them, for two
    slots, both operands are loaded more often."""
    arch = machine(accumulators=4096, matrix=GEMM | {"rows": 16, "cols": 16})
    net = Net()
    x = net.op("MatMul", net.input(64, 512), net.weight(512, 64))
    made = check(net.model(net.op("Gelu", x, approximate="tanh")), arch, "fp32").compiled
    buffers = made.decisions[0].plan.buffers.values()
    (buffer,) = (b for b in buffers if b.role == "accumulators")
    assert buffer.slots == 1
    assert 2 * buffer.bytes > 4096
    # Smaller ones have more of half of the memory: products go on while their finisher is busy.
    way = made.decisions[0].schedule.layers[0].layer.binding
    slots = [int(slots_of_sums(way, arch, size, 2)) for size in (256, 600, 2048, 2049)]
    assert slots == [4, 3, 2, 1]
    assert slots_of_sums(way, arch, 256, 1) == 1


# Winograd: 3 x 3 convolutions of integers in tiles of outputs, with fewer products.


def convolution(
    size: int = 8, channels: int = 16, kernel: int = 3, quantized: bool = True, **fields: Any
) -> onnx.ModelProto:
    """x (channels x size x size) -> 24 channels."""
    net = Net(quantized=quantized, seed=3)
    x = net.input(1, channels, size, size)
    groups = fields.get("group", 1)
    w = net.weight(24, channels // groups, kernel, kernel)
    return net.model(net.op("Conv", x, w, net.vector(24), **fields))


def forms(found: Checked) -> set[str]:
    """Of the products of the program."""
    made = (item for core in found.compiled.program.cores for item, _ in instructions(core))
    return {item.MNEMONIC for item in made if isinstance(item, MatrixInstruction)}


def cube(**fields: Any) -> Arch:
    """4 pixels, 8 columns, dot products of 8."""
    rates = {"int8": 1.0, "int16": 0.5, "fp16": 0.5}
    types = ("int8", "fp16") if fields.pop("floats", False) else ("int8",)
    return machine(types=types, matrix={"im2col": False, "rate": rates} | fields)


PADDED = {"pads": [1, 1, 1, 1]}


@pytest.mark.parametrize(
    "winograd, cycles",
    [
        # 16 x 16 outputs of 24 channels from 16: 3 blocks of 8 columns and 2 steps of 8 channels,
        # for each of 9 positions 64 blocks of 4 pixels,
        (None, 3 * 2 * 9 * 64),
        # of 16 positions 64 tiles of 2 x 2, in 16 blocks, or of 36 16 tiles of 4 x 4, in 4.
        ({}, 3 * 2 * 16 * 16),
        ({"outputs": 4}, 3 * 2 * 36 * 4),
        # 8 steps of 2 channels for each tile, whose 2 x 16 products fill the 4 x 8 cells of a
        # column; of 3 channels 6 steps of 2 cycles each, of which the second is half empty.
        ({"channels": 2}, 3 * 64 * 8),
        ({"channels": 3}, 3 * 64 * 6 * 2),
    ],
)
def test_cycles(winograd: dict[str, int] | None, cycles: int) -> None:
    arch = cube(winograd=winograd)
    kind = "int8" if winograd is None else f"int8_winograd{winograd.get('outputs', 2)}"
    assert product_cycles(arch.matrix, kind, whole_tiles(kind, 16, 16), 24, 16, 9) == cycles
    found = check(convolution(16, **PADDED), arch, "int8")
    assert forms(found) == {"matrix.conv" if winograd is None else "matrix.winograd"}
    assert found.trace.macs == 256 * 24 * 16 * 9
    if winograd is None or "outputs" not in winograd:  # in bands of 2 lines, half of a tile of 4
        assert array_cycles(found, arch) == cycles


def test_tiles_of_odd_sizes_are_whole_ones() -> None:
    matrix, kind = cube(winograd={}).matrix, "int8_winograd2"
    assert whole_tiles("int8", 7, 5) == 7 * 5
    assert whole_tiles(kind, 7, 5) == 8 * 6
    # 4 x 3 tiles in 3 blocks, for each of 16 positions; at a half of the rate twice as many.
    assert product_cycles(matrix, kind, 48, 8, 8, 9) == 3 * 16
    assert product_cycles(matrix, "int16_winograd2", 48, 8, 8, 9) == 2 * 3 * 16
    assert matrix.peak(kind) == 2.25 * matrix.peak("int8")
    assert matrix.peak("int8_winograd4") == 0, "of other tiles"


@pytest.mark.parametrize(
    "fields",
    [
        {"kernel": 5}, {"strides": [2, 2]}, {"dilations": [2, 2]}, {"kernel": 1},
        {"size": 3},  # one output takes 16 products, which are no fewer than 9
    ],
)  # fmt: skip
def test_other_convolutions_are_direct(fields: dict[str, Any]) -> None:
    found = check(convolution(**fields), cube(winograd={}), "int8")
    assert forms(found) <= {"matrix.conv", "matrix.gemm"}


def test_floating_point_numbers_are_multiplied_directly() -> None:
    found = check(convolution(quantized=False), cube(winograd={}, floats=True), "fp16")
    assert forms(found) == {"matrix.conv"}


def test_groups_have_products_of_their_own() -> None:
    found = check(convolution(group=2, **PADDED), cube(winograd={}), "int8")
    assert forms(found) == {"matrix.winograd"}


@settings(max_examples=12)
@given(machines(), st.booleans())
def test_any_machine(arch: Arch, stored: bool) -> None:
    if "int8" not in arch.types or arch.matrix.kind != "cube" or not arch.matrix.present:
        return
    fields: dict[str, Any] = {
        "granularity": "conv",
        "winograd": Winograd(channels=3, stored=stored),
    }
    with may_be_refused():
        check(convolution(7, **PADDED), changed(arch, "matrix", **fields), "int8")


def test_transformed_kernels_are_stored_where_their_bytes_are_worth_it() -> None:
    # 24 x 16 kernels of 4 x 4 bytes in the place of 3 x 3, for 16 x 16 outputs. For 4 x 4 outputs
    # the products take 216 and 96 cycles, the kernels 216 and 384 at 16 bytes a cycle.
    stored, without = cube(winograd={"stored": True}), cube(winograd=None)
    many = [check(convolution(16, **PADDED), arch, "int8") for arch in (stored, without)]
    moved = [found.trace.traffic["dram.read"] for found in many]
    assert forms(many[0]) == {"matrix.winograd"}
    assert moved[0] - moved[1] == 24 * 16 * 7
    assert array_cycles(many[0], stored) == 3 * 2 * 16 * 16
    few = check(convolution(4, **PADDED), cube(winograd={"stored": True}), "int8")
    assert forms(few) == {"matrix.conv"}
