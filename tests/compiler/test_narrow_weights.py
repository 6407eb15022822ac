"""Weights stay narrow in memory and are widened on chip; what is computed is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import NAMED, machine, machines
from networks import Net, check, may_be_refused, model
from onnx import helper, numpy_helper

from simmodel.arch.dtype import NUMPY
from simmodel.arch.element_types import STORED, bytes_for
from simmodel.arch.record import Arch

KINDS = ("int8", "uint8", "int4", "uint4", "fp8e4m3", "fp8e5m2")
RANGES = {"int8": (-90, 90), "uint8": (0, 180), "int4": (-8, 8), "uint4": (0, 16)}


class Quantized(Net):
    """A network some of whose weights are quantized."""

    def narrow(
        self, shape: tuple[int, ...], kind: str, *, axis: int = 0, block: int = 0,
        zeros: str = "none", scale: str = "channel",
    ) -> str:  # fmt: skip
        """Weights of type `kind` behind a DequantizeLinear: blocks of `block` along `axis`, else a
        scale for each index of it, or one. `zeros`: none, one for all, or one for each scale."""
        raw, spread = self._numbers(shape, kind)
        if block:
            extents = tuple(n // block if a == axis else n for a, n in enumerate(shape))
        else:
            extents = () if scale == "tensor" else (shape[axis],)
        scales = (self.rng.uniform(0.5, 1.5, extents) * spread).astype(np.float32)
        name = self._name()
        self.constants.append(_tensor(f"{name}.q", raw, kind))
        inputs = [f"{name}.q", self.const(scales)]
        if zeros != "none" and kind in RANGES:
            low, high = RANGES[kind]
            points = self.rng.integers(low // 2, high // 2, extents)
            points = np.full(extents, 3) if zeros == "one" else points
            self.constants.append(_tensor(f"{name}.z", points, kind))
            inputs.append(f"{name}.z")
        extra: dict[str, Any] = {"block_size": block} if block else {}
        self.nodes.append(
            helper.make_node("DequantizeLinear", inputs, [name], name=name, axis=axis, **extra)
        )
        self.shapes[name] = shape
        return name

    def _numbers(self, shape: tuple[int, ...], kind: str) -> tuple[np.ndarray, float]:
        deep = np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0])
        if kind in RANGES:
            return self.rng.integers(*RANGES[kind], shape), 1 / (max(RANGES[kind]) * deep)
        return self.rng.standard_normal(shape).astype(NUMPY[kind]), 1 / deep


def _tensor(name: str, values: np.ndarray, kind: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values).astype(NUMPY[kind]), name)


def able(arch: Arch, *, widens: bool = False) -> Arch:
    """`arch` whose vector engine reads all narrow types, or whose copy engines widen them."""
    record = arch.model_dump(by_alias=True)
    narrow = sorted(STORED)
    if widens:
        for engine in record["copy"].values():
            engine["widens"] = narrow
    else:
        record["vector"]["types"] = [*record["vector"]["types"], *narrow]
    weights = record["matrix"]["weights"]
    for way in ("reads", "writes"):
        record["vector"][way] = list(dict.fromkeys([*record["vector"][way], weights]))
    return Arch.model_validate(record)


def perceptron(kind: str, rows: int = 1, **how: Any) -> onnx.ModelProto:
    """x (rows x 64) -> 96 -> 32, weights quantized alike."""
    net = Quantized(seed=5)
    x = net.input(rows, 64)
    hidden = net.op("Relu", net.op("MatMul", x, net.narrow((64, 96), kind, **how)))
    return net.model(net.op("MatMul", hidden, net.narrow((96, 32), kind, **how)))


WAYS = (
    {"axis": 1}, {"scale": "tensor"}, {"block": 32}, {"block": 16, "zeros": "each"},
    {"axis": 1, "zeros": "one"}, {"axis": 1, "zeros": "each"},
)  # fmt: skip


@pytest.mark.parametrize("how", WAYS, ids=lambda how: "-".join(map(str, how.values())))
@pytest.mark.parametrize("kind", KINDS)
def test_every_type_and_every_kind_of_scales(kind: str, how: dict[str, Any]) -> None:
    model = perceptron(kind, **how)
    seen = check(model, able(NAMED["plain"]), "fp16")
    weights = 64 * 96 + 96 * 32
    moved = seen.trace.traffic["dram.read"]
    assert moved < 1.8 * weights  # as fp16 they are 2 bytes each
    packed = seen.compiled.program.constants
    assert sum(c.data.nbytes for c in packed if "#" in c.name and "." not in c.name) == bytes_for(
        kind, weights
    )


@pytest.mark.parametrize("widens", [False, True])
@pytest.mark.parametrize("name", NAMED)
def test_every_machine_that_can_widen(name: str, widens: bool) -> None:
    for kind, how in (("int4", {"block": 32}), ("int8", {"axis": 1})):
        model = perceptron(kind, rows=9, **how)
        with may_be_refused():
            check(model, able(NAMED[name], widens=widens), "fp16")


def test_convolutions_have_a_scale_for_each_channel() -> None:
    net = Quantized(seed=4)
    x = net.input(1, 6, 9, 9)
    y = net.op("Conv", x, net.narrow((12, 6, 3, 3), "int4"), pads=[1, 1, 1, 1])
    y = net.op("Relu", y)
    y = net.op("Conv", y, net.narrow((8, 12, 1, 1), "int8"))
    seen = check(net.model(y), able(NAMED["plain"]), "fp16")
    assert {c.name.rpartition("#")[2] for c in seen.compiled.program.constants} >= {"0.scales"}


@settings(max_examples=25)
@given(machines(), st.sampled_from(sorted(KINDS)), st.sampled_from(WAYS), st.integers(1, 5),
       st.booleans())  # fmt: skip
def test_any_machine(arch: Arch, kind: str, how: dict[str, Any], rows: int, widens: bool) -> None:
    model = perceptron(kind, rows, **how)
    dtype = "fp16" if "fp16" in arch.types else arch.types[0]
    if dtype == "int8":
        return
    with may_be_refused():
        check(model, able(arch, widens=widens), dtype)


def test_four_bits_are_bytes_where_no_engine_knows_them() -> None:
    model = perceptron("int4", block=32)
    seen = check(model, NAMED["plain"], "fp16")
    sizes = {c.name: c.data.nbytes for c in seen.compiled.program.constants}
    assert sorted(size for name, size in sizes.items() if name.endswith(("#0", "#1"))) == [
        96 * 32, 64 * 96,
    ]  # fmt: skip


def test_a_slow_vector_engine_leaves_weights_as_they_are() -> None:
    slow = machine(vector={"lanes": 2})
    model = perceptron("int8", axis=1)
    seen = check(model, slow, "fp16")
    assert seen.trace.traffic["dram.read"] >= 2 * (64 * 96 + 96 * 32)


@pytest.mark.parametrize(("bits", "deep", "points"), [
    (4, 64, False), (4, 64, True), (8, 64, False), (8, 64, True), (4, 70, True), (4, 70, False),
])  # fmt: skip
def test_products_with_packed_weights_of_onnx_runtime(bits: int, deep: int, points: bool) -> None:
    wide, block, rng = 48, 16, np.random.default_rng(bits + deep)
    blocks = -(-deep // block)
    packed = rng.integers(0, 256, (wide, blocks, block * bits // 8), np.uint8)
    scales = rng.uniform(0.001, 0.003, (wide, blocks)).astype(np.float32)
    names, inits = ["x0", "b", "s"], {"b": packed, "s": scales}
    if points:
        size = -(-blocks * bits // 8)
        inits["z"] = rng.integers(0, 256, (wide, size), np.uint8)
        names.append("z")
    node = helper.make_node(
        "MatMulNBits", names, ["y"], name="mm", domain="com.microsoft", K=deep, N=wide, bits=bits,
        block_size=block,
    )  # fmt: skip
    proto = model(
        [node], {"x0": (3, deep)}, {"y": (3, wide)}, inits, opset=21, domain="com.microsoft"
    )
    seen = check(proto, able(NAMED["plain"]), "fp16")
    assert not seen.compiled.host
    sizes = [c.data.nbytes for c in seen.compiled.program.constants if c.name.endswith("#0")]
    assert sizes == [wide * deep * (2 if deep % block else bits / 8)]
