"""Winograd: 3 x 3 convolutions of integers in tiles of outputs, with fewer products."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import changed, machine, machines
from networks import Checked, Net, array_cycles, check, refused

from compiler.errors import DoesNotFit, UnsupportedModel
from simmodel.arch.matrix_cycles import product_cycles, whole_tiles
from simmodel.arch.record import Arch, Winograd
from simmodel.isa import MatrixInstruction
from simmodel.isa.base import instructions


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
    try:
        check(convolution(7, **PADDED), changed(arch, "matrix", **fields), "int8")
    except (DoesNotFit, UnsupportedModel) as why:
        refused(why)


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
