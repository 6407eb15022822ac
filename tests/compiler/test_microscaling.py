"""Weights in a microscaling format, 32 numbers of few bits along the reduction and their scale; and
sparse ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from machines import ALL_TYPES, RATES, changed, machine, machines, reading_compressed
from networks import Net, array_cycles, check, feeds_of, may_be_refused, reference, weight_types
from onnx import numpy_helper

import archgen
from archgen.models.encodings import fold_batch_norms, round_operands
from archgen.models.errors import ModelError
from archgen.models.load import open_model
from archgen.zoo.catalog import ZooError, build
from simmodel.arch.dtype import holds, microscaled, pack, unpack
from simmodel.arch.element_types import MX_BITS, MX_BLOCK
from simmodel.arch.record import Arch

RATE = {"fp16": 0.5, "int8": 1.0} | {f"fp16_{kind}": 0.5 for kind in MX_BITS}


def test_numbers_of_each_format_by_hand() -> None:
    # The largest is 5 = 1.25 x 2^2. E2M1: its largest power is 2^2, the scale 2^0: 0, 0.5, 1, 1.5,
    # 2, 3, 4, 6; ties to even. E2M3: 2^2 too, steps of 0.5 from 4 on, 0.125 below 2. E4M3: 2^8, so
    # the scale is 2^-6 and 5 is 320 of steps of 32. int8: steps of 2^2 / 64.
    values = np.zeros(32, np.float32)
    values[:6] = 5, -4.3, 2.6, 1.3, 0.3, 0.04
    wanted = {
        "mxfp4": [4, -4, 3, 1.5, 0.5, 0], "mxfp6": [5, -4.5, 2.5, 1.25, 0.25, 0],
        "mxfp8": [5, -4.5, 2.5, 1.25, 0.3125, 0.0390625],
        "mxint8": [5, -4.3125, 2.625, 1.3125, 0.3125, 0.0625],
        "bfp8": [5, -4.3125, 2.625, 1.3125, 0.3125, 0.0625],
    }  # fmt: skip
    sizes = {"mxfp4": 17, "mxfp6": 25, "mxfp8": 33, "mxint8": 33, "bfp8": 17}
    for kind, numbers in wanted.items():
        raw = pack(values[: MX_BLOCK[kind]], f"fp16_{kind}")
        assert raw.shape == (sizes[kind],)
        assert raw[-1] == 127 + {"mxfp8": -6, "mxint8": -4, "bfp8": -4}.get(kind, 0)
        np.testing.assert_array_equal(unpack(raw, f"fp16_{kind}", 6), numbers)


@pytest.mark.parametrize("kind", MX_BITS)
def test_rounded_numbers_stay(kind: str) -> None:
    random = np.random.default_rng(3)
    values = random.normal(size=(7, 96)) * 10.0 ** random.integers(-6, 3, (7, 1))
    rounded = microscaled(values, kind)
    np.testing.assert_array_equal(microscaled(rounded, kind), rounded)
    assert holds(f"bf16_{kind}", rounded.astype(ml_dtypes.bfloat16), 1)
    assert holds(f"fp16_{kind}", rounded.astype(np.float16), 1)
    assert not holds(f"fp16_{kind}", values, 1) and not holds(f"fp16_{kind}", rounded[:, :40], 1)
    most = {"mxfp8": 8, "mxfp6": 16, "mxfp4": 4, "mxint8": 64, "bfp8": 64}[kind]
    largest = np.abs(values).reshape(7, -1, MX_BLOCK[kind]).max(-1).repeat(MX_BLOCK[kind], -1)
    assert (np.abs(rounded - values) <= largest / most).all()


class Microscaled(Net):
    """A network whose weights are rounded to a format along axis 0, of convolutions along 1."""

    kind = ""

    def const(self, values: Any, dtype: Any = None) -> str:
        array = np.asarray(values, dtype)
        if array.ndim > 1:
            axis = 0 if array.ndim == 2 else 1
            rows = microscaled(np.moveaxis(array, axis, -1), self.kind)
            array = np.moveaxis(rows, -1, axis).astype(array.dtype)
        return super().const(array)


def network(kind: str, rows: int = 3) -> onnx.ModelProto:
    """x (rows x 64) -> 96 -> 32."""
    net = Microscaled(seed=5)
    net.kind = kind
    x = net.input(rows, 64)
    hidden = net.op("Relu", net.op("MatMul", x, net.weight(64, 96)))
    return net.model(net.op("MatMul", hidden, net.weight(96, 32)))


def convolutions(kind: str) -> onnx.ModelProto:
    net = Microscaled(seed=2)
    net.kind = kind
    x = net.input(1, 32, 7, 7)
    hidden = net.op("Conv", x, net.weight(64, 32, 3, 3), net.vector(64), pads=[1, 1, 1, 1])
    return net.model(net.op("Conv", hidden, net.weight(8, 64, 1, 1)))


MACHINES = reading_compressed(RATE, ("fp16", "int8"), rows=32, room=16384)


@pytest.mark.parametrize("name", MACHINES)
def test_networks_have_right_answers(name: str) -> None:
    formats = ((network, "mxfp4"), (convolutions, "mxfp6"), (network, "bfp8"))
    for model, kind in ((made(kind), kind) for made, kind in formats):
        assert weight_types(check(model, MACHINES[name], "fp16")) == {f"fp16_{kind}"}


def test_bytes_and_cycles() -> None:
    # 64 x 96 and 96 x 32 weights of fp16: 32 of them are 16 bytes and one of their scale.
    weights = 64 * 96 + 96 * 32
    fast = changed(MACHINES["conv"], "matrix", rate=RATE | {"fp16_mxfp4": 1.0})
    plain = changed(MACHINES["conv"], "matrix", rate={"fp16": 0.5, "int8": 1.0})
    found = [check(network("mxfp4"), arch, "fp16") for arch in (fast, MACHINES["conv"], plain)]
    moved = [each.trace.traffic["dram.read"] for each in found]
    saved = weights * 2 - weights * 17 // 32
    assert all(0 <= saved - (moved[2] - each) < 2 * 64 for each in moved[:2])  # whole bursts
    assert all(each.trace.cycles < found[2].trace.cycles for each in found[:2])
    # A cube of 4 x 8 x 8: one block of rows, 12 and 4 of columns, 8 and 12 steps of the depth.
    machines = fast, MACHINES["conv"], plain
    cycles = [array_cycles(each, arch) for each, arch in zip(found, machines, strict=True)]
    assert cycles == [12 * 8 + 4 * 12, 2 * (12 * 8 + 4 * 12), 2 * (12 * 8 + 4 * 12)]


# Tiles of two pixels and of one, which two arrays share in other ways; weights streamed by both.
TWO_ARRAYS = machine(
    local={"size": 2048, "banks": 1, "bank_width": 4}, weights=8192,
    matrix={"rows": 1, "cols": 8, "units": 2, "granularity": "conv"},
    vector={"lanes": 1, "rank": 1, "types": ALL_TYPES}, copy={"rank": 1},
)  # fmt: skip


@settings(max_examples=12)
@given(machines())
@example(TWO_ARRAYS)
def test_any_machine(arch: Arch) -> None:
    if "fp16" not in arch.types or not arch.matrix.peak("fp16"):
        return
    rate = {**arch.matrix.rate, "fp16_mxfp4": arch.matrix.peak("fp16") / arch.matrix.cells}
    with may_be_refused():
        check(convolutions("mxfp4"), changed(arch, "matrix", rate=rate), "fp16")


def test_other_weights_are_read_as_they_are() -> None:
    model = network("mxfp4")
    first = next(t for t in model.graph.initializer if t.dims == [64, 96])
    raw = numpy_helper.to_array(first).copy()
    raw[0, 5] *= 0.9
    first.CopyFrom(numpy_helper.from_array(raw, first.name))
    assert weight_types(check(model, MACHINES["conv"], "fp16")) == {"fp16", "fp16_mxfp4"}


def test_blocks_of_dequantize_linear() -> None:
    """ONNX's own blocks: int8 by a power of two, which is what mxint8 is."""
    random, net = np.random.default_rng(1), Net(seed=1)
    x = net.input(4, 64)
    raw = net.const(random.integers(-127, 128, (64, 32)), np.int8)
    scales = net.const(2.0 ** random.integers(-9, -5, (2, 32)), np.float32)
    w = net.op("DequantizeLinear", raw, scales, axis=0, block_size=32)
    found = check(net.model(net.op("MatMul", x, w)), MACHINES["conv"], "fp16")
    assert weight_types(found) == {"fp16_mxint8"}


def test_a_network_is_asked_for_with_such_weights(tmp_path: Path) -> None:
    known = {}
    for spec in (
        "squeezenet:image=32,weights=mxfp4", "squeezenet:weights=mxfp4,image=32",
        "squeezenet:image=32:weights=mxfp4",
    ):  # fmt: skip
        model = open_model(spec)
        assert model.name == spec
        known = {t.name: numpy_helper.to_array(t) for t in model.complete.graph.initializer}
    plain = open_model("squeezenet:image=32").complete.graph.initializer
    for tensor in plain:
        if len(tensor.dims) < 2:
            continue
        values = known[tensor.name]
        whole = tensor.dims[1] % 32 == 0
        assert np.array_equal(numpy_helper.to_array(tensor), values) != whole
        assert holds("fp16_mxfp4", values, 1) == whole
    onnx.save(open_model("squeezenet:image=32").complete, tmp_path / "net.onnx")
    model = open_model(f"{tmp_path}/net.onnx:weights=mxfp4")
    assert model.name == "net"
    for tensor in model.proto.graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), known[tensor.name])
    with pytest.raises(ModelError, match=r"weights=mxf4: expected mxfp8, .*; did you mean 'mxfp4'"):
        open_model("squeezenet:weights=mxf4")
    with pytest.raises(ModelError, match=r"expected mxfp8, .*; did you mean 'mxfp6'"):
        open_model("squeezenet:weights=MXFP6")


def test_a_format_that_products_read_is_not_called_useless(tmp_path: Path) -> None:
    onnx.save(network("mxfp8"), tmp_path / "net.onnx")
    spec, machine = f"{tmp_path}/net.onnx:weights=mxfp4", MACHINES["conv"]
    found = archgen.study(machine, spec, dtype="fp16", effort=0, verify=False, plots=False)
    assert found.frame["status"][0] == "ok" and "only rounds" not in str(found.frame["note"][0])


def test_weights_are_rounded_with_the_normalization_behind_them() -> None:
    random, net = np.random.default_rng(4), Net(seed=4)
    x = net.input(1, 32, 5, 5)
    made = net.op("Conv", x, net.weight(8, 32, 3, 3), net.vector(8))
    positive = net.const(random.uniform(0.5, 2, 8), np.float32)
    normed = net.op("BatchNormalization", made, positive, *(net.vector(8) for _ in "12"), positive)
    model = net.model(net.op("Relu", normed))
    feeds = feeds_of(model)
    (wanted,) = reference(model, feeds).values()
    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    fold_batch_norms(folded.graph)
    assert "BatchNormalization" not in {node.op_type for node in folded.graph.node}
    (values,) = reference(folded, feeds).values()
    np.testing.assert_allclose(values, wanted, 1e-4, 1e-4)
    round_operands(model, {"weights": "mxfp8"})
    assert weight_types(check(model, MACHINES["conv"], "fp16")) == {"fp16_mxfp8"}


# Sparse weights, two of four: multiplied faster, and stored without their zeros.

SPARSE_RATE = {"int8": 1.0, "fp16": 0.5, "int8_2of4": 2.0, "fp16_2of4": 1.0}


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


def pruned_convolutions(*, quantized: bool) -> onnx.ModelProto:
    net = Pruned(quantized=quantized, seed=2)
    net.axis = 1
    x = net.input(1, 16, 9, 9)
    hidden = net.op("Conv", x, net.weight(24, 16, 3, 3), net.vector(24), pads=[1, 1, 1, 1])
    return net.model(net.op("Conv", hidden, net.weight(8, 24, 1, 1)))


SPARSE_MACHINES = reading_compressed(SPARSE_RATE, ("int8", "fp16"))


@pytest.mark.parametrize("dtype", ["int8", "fp16"])
@pytest.mark.parametrize("name", SPARSE_MACHINES)
def test_pruned_networks_have_right_answers(name: str, dtype: str) -> None:
    quantized = dtype == "int8"
    for model in (perceptron(quantized=quantized), pruned_convolutions(quantized=quantized)):
        found = check(model, SPARSE_MACHINES[name], dtype)
        assert weight_types(found) == {f"{dtype}_2of4"}


def test_bytes_and_cycles_of_sparse_weights() -> None:
    # 64 x 96 and 96 x 32 weights of int8: eight of them are four numbers and a byte of places.
    weights = 64 * 96 + 96 * 32
    dense = changed(SPARSE_MACHINES["conv"], "matrix", rate={"int8": 1.0})
    machines, model = (SPARSE_MACHINES["conv"], dense), perceptron(quantized=True)
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
    found = check(perceptron(quantized=True, axis=1), SPARSE_MACHINES["conv"], "int8")
    assert weight_types(found) == {"int8"}
    model = perceptron(quantized=True)
    first = next(t for t in model.graph.initializer if t.dims == [64, 96])
    raw = numpy_helper.to_array(first).copy()
    raw[0, 0] = raw[1, 0] = raw[2, 0] = 1
    first.CopyFrom(numpy_helper.from_array(raw, first.name))
    assert weight_types(check(model, SPARSE_MACHINES["conv"], "int8")) == {"int8", "int8_2of4"}


def test_weights_that_stay_are_read_in_whole_blocks() -> None:
    # Sums are cut at three channels here, of weights that are on chip as a whole.
    small = {"kind": "cube", "rows": 1, "cols": 4, "depth": 1, "granularity": "gemm"}
    arch = machine(
        local={"size": 32768, "banks": 1, "bank_width": 4}, accumulators=8192, copy={"rank": 1},
        matrix=small | {"rate": RATES | {"int8_2of4": 4.0}},
        vector={"lanes": 1, "rank": 1, "window": False},
    )  # fmt: skip
    check(pruned_convolutions(quantized=True), arch, "int8")


@settings(max_examples=12)
@given(machines())
def test_sparse_weights_on_any_machine(arch: Arch) -> None:
    if "int8" not in arch.types or not arch.matrix.peak("int8"):
        return
    rate = {**arch.matrix.rate, "int8_2of4": 2 * arch.matrix.peak("int8") / arch.matrix.cells}
    with may_be_refused():
        check(pruned_convolutions(quantized=True), changed(arch, "matrix", rate=rate), "int8")


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
