"""Residuals that take room from the tiles of a product are layers of their own."""

from __future__ import annotations

import pytest
from machines import machine
from networks import Net

from compiler.api import CompileOptions, compile_model, prepared


@pytest.mark.parametrize(("size", "layers"), [(4096, [1, 1]), (1 << 20, [2])])
def test_a_residual_is_cut_off_where_it_leaves_a_product_small_tiles(
    size: int, layers: list[int]
) -> None:
    """Of 64 x 512 by 512 x 64 the weights take 64 KiB, and tiles of sums with a residual and a
    result, two slots each, most of a memory of 4 KiB: operands are loaded more often."""
    net = Net()
    x = net.input(64, 512)
    y = net.op("Add", net.op("MatMul", x, net.weight(512, 64)), net.input(64, 64))
    arch = machine(types=("fp32",), local={"size": size})
    made = compile_model(prepared(net.model(y), "net"), arch, CompileOptions())
    found = [len(d.schedule.layers[0].layer.nests) for d in made.decisions]
    assert found == layers
