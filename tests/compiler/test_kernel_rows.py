"""Sums that are split along the rows of a kernel: weights of one row at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from machines import SYSTOLIC, machine
from networks import Net, check

from compiler.api import CompileOptions, compile_model, prepared
from compiler.cost.multicast import Cores
from compiler.decisions.text.extract import extract_tree
from compiler.decisions.text.text import TreeError, parse_tree, print_tree
from compiler.lowering.lower import lower
from compiler.schedule.tiling.layer_price import TilingProblem, price
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import TileLoop
from compiler.target.array_mapping import roles
from compiler.target.bind import Bind
from compiler.target.product_tiles import TileSizes
from compiler.tensor_ir.nest import Nest
from simmodel.arch.record import Arch

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
