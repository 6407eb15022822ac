"""Sparse weights, two of four: multiplied faster, and stored without their zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from machines import RATES, changed, machine, machines, reading_compressed
from networks import Net, array_cycles, check, refused, weight_types
from onnx import numpy_helper

from archgen.zoo.catalog import ZooError, build
from compiler.errors import DoesNotFit, UnsupportedModel
from simmodel.arch.record import Arch

RATE = {"int8": 1.0, "fp16": 0.5, "int8_2of4": 2.0, "fp16_2of4": 1.0}


def pruned(values: np.ndarray, axis: int) -> np.ndarray:
    """`values` with two of each four along `axis` 0."""
    rows = np.moveaxis(values.copy(), axis, -1)
    rows[..., 0::4], rows[..., 3::4] = 0, 0
    return np.moveaxis(rows, -1, axis)


class Pruned(Net):
    """A network whose weights are pruned along an axis."""

    axis = 0

    def const(self, values: Any, dtype: Any = None) -> str:
        array = np.asarray(values, dtype)
        return super().const(pruned(array, self.axis) if array.ndim > 1 else array)


def perceptron(*, quantized: bool, rows: int = 3, axis: int = 0) -> onnx.ModelProto:
    """x (rows x 64) -> 96 -> 32."""
    net = Pruned(quantized=quantized, seed=5)
    net.axis = axis
    x = net.input(rows, 64)
    hidden = net.op("Relu", net.op("MatMul", x, net.weight(64, 96)))
    return net.model(net.op("MatMul", hidden, net.weight(96, 32)))


def convolutions(*, quantized: bool) -> onnx.ModelProto:
    net = Pruned(quantized=quantized, seed=2)
    net.axis = 1
    x = net.input(1, 16, 9, 9)
    hidden = net.op("Conv", x, net.weight(24, 16, 3, 3), net.vector(24), pads=[1, 1, 1, 1])
    return net.model(net.op("Conv", hidden, net.weight(8, 24, 1, 1)))


MACHINES = reading_compressed(RATE, ("int8", "fp16"))


@pytest.mark.parametrize("dtype", ["int8", "fp16"])
@pytest.mark.parametrize("name", MACHINES)
def test_pruned_networks_have_right_answers(name: str, dtype: str) -> None:
    quantized = dtype == "int8"
    for model in (perceptron(quantized=quantized), convolutions(quantized=quantized)):
        found = check(model, MACHINES[name], dtype)
        assert weight_types(found) == {f"{dtype}_2of4"}


def test_bytes_and_cycles() -> None:
    # 64 x 96 and 96 x 32 weights of int8: eight of them are four numbers and a byte of places.
    weights = 64 * 96 + 96 * 32
    dense = changed(MACHINES["conv"], "matrix", rate={"int8": 1.0})
    machines, model = (MACHINES["conv"], dense), perceptron(quantized=True)
    with_, without = (check(model, arch, "int8") for arch in machines)
    moved = [f.trace.traffic["dram.read"] for f in (with_, without)]
    assert moved[1] - moved[0] == weights * 3 // 8
    assert weight_types(without) == {"int8"}
    # A cube of 4 x 8 x 8: one block of rows, 12 and 4 of columns, 8 and 12 steps of the depth; half
    # as many where the depth of a step is twice as long.
    cycles = [
        array_cycles(found, arch) for found, arch in zip((with_, without), machines, strict=True)
    ]
    assert cycles == [12 * 4 + 4 * 6, 12 * 8 + 4 * 12]
    assert with_.trace.cycles < without.trace.cycles


def test_weights_that_are_sparse_the_other_way_are_dense() -> None:
    found = check(perceptron(quantized=True, axis=1), MACHINES["conv"], "int8")
    assert weight_types(found) == {"int8"}
    model = perceptron(quantized=True)
    first = next(t for t in model.graph.initializer if t.dims == [64, 96])
    raw = numpy_helper.to_array(first).copy()
    raw[0, 0] = raw[1, 0] = raw[2, 0] = 1
    first.CopyFrom(numpy_helper.from_array(raw, first.name))
    assert weight_types(check(model, MACHINES["conv"], "int8")) == {"int8", "int8_2of4"}


def test_weights_that_stay_are_read_in_whole_blocks() -> None:
    # Sums are cut at three channels here, of weights that are on chip as a whole.
    small = {"kind": "cube", "rows": 1, "cols": 4, "depth": 1, "granularity": "gemm"}
    arch = machine(
        local={"size": 32768, "banks": 1, "bank_width": 4}, accumulators=8192, copy={"rank": 1},
        matrix=small | {"rate": RATES | {"int8_2of4": 4.0}},
        vector={"lanes": 1, "rank": 1, "window": False},
    )  # fmt: skip
    check(convolutions(quantized=True), arch, "int8")


@settings(max_examples=12)
@given(machines())
def test_any_machine(arch: Arch) -> None:
    if "int8" not in arch.types or not arch.matrix.peak("int8"):
        return
    rate = {**arch.matrix.rate, "int8_2of4": 2 * arch.matrix.peak("int8") / arch.matrix.cells}
    try:
        check(convolutions(quantized=True), changed(arch, "matrix", rate=rate), "int8")
    except (DoesNotFit, UnsupportedModel) as why:
        refused(why)


def test_a_sparse_rate_is_no_less_than_the_dense_one() -> None:
    with pytest.raises(ValueError, match="at least as fast as others of int8"):
        machine(types=("int8",), matrix={"rate": {"int8": 1.0, "int8_2of4": 0.5}})


def test_networks_of_the_zoo_are_pruned() -> None:
    model = build("squeezenet", image=32, pruned=2)
    known = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    inner = known["fire2.expand3x3.weight"]
    assert ((inner.reshape(64, -1, 4, 3, 3) != 0).sum(2) == 2).all()
    assert (known["conv1.weight"] != 0).all()  # three channels are no whole four
    with pytest.raises(ZooError, match="pruned=5 must be 1, 2 or 3 of four weights"):
        build("squeezenet", pruned=5)
