"""Weights stay narrow in memory and are widened on chip; what is computed is the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import NAMED, SYSTOLIC, WRITEBACK, machine, machines
from networks import Array, Net, check, feeds_of, may_be_refused, model, model_of, reference
from onnx import helper, numpy_helper

from archgen.check.reference import run_node
from archgen.program_files import encoded
from compiler.context import CompileOptions, CompileResult
from compiler.options import stages_for
from compiler.pipeline import compile_model
from simmodel.arch.dtype import NUMPY
from simmodel.arch.element_types import STORED, bytes_for
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.isa import MatrixInstruction
from simmodel.isa.base import instructions
from simmodel.program.loadable import from_bytes
from simmodel.verify import verify

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


# Activations of 16 bits times weights of 8, between layers of 8 bits, against ONNX Runtime.

INT8 = ("int8",)
INTEGERS = ("int8", "uint8", "int32")
WIDE = {"rate": {"int8": 1.0, "int16": 0.5}}
DIRECT = WIDE | {"writeback": WRITEBACK}
MACHINES = {
    arch.name: arch
    for arch in (
        machine(name="finishing", types=INT8, matrix=DIRECT | {"depthwise": True}),
        machine(name="fine", types=INT8, accumulators=4096, weights=4096,
                matrix=WIDE | SYSTOLIC | {"granularity": "tile", "max_pixels": 8},
                vector={"rank": 2, "window": False}),
        machine(name="small", types=INT8, local={"size": 4096}, cores=2, sync="interlock",
                matrix=WIDE | SYSTOLIC | {"granularity": "gemm", "writeback": ("requantize",)}),
        machine(name="integers", types=INT8, matrix=DIRECT,
                vector={"types": (*INTEGERS, "int16")}),
        machine(name="real"),
        machine(name="bytes", types=INT8, matrix={"rate": {"int8": 1.0}},
                vector={"types": (*INTEGERS, "fp32")}),
    )
}  # fmt: skip
"""The last two have no products of 16-bit integers: the one multiplies fp32, the other neither; the
one before them has no fp32."""
Code = tuple[str, int]
"""Element type of quantized activations, and their zero point."""
WORDS: tuple[Code, ...] = (("uint16", 30011), ("int16", 0), ("int16", -4099), ("uint16", 0))
SEAMS: tuple[Code, ...] = (
    ("int8", 3),
    ("uint16", 32768),
    ("uint8", 131),
    ("int16", 7),
    ("int8", 0),
)


class MixedNet(Net):
    """A network whose values are quantized by `codes`, one after another."""

    def __init__(self, codes: Sequence[Code]) -> None:
        super().__init__(quantized=True)
        self.codes = cycle(codes)
        self.scales: dict[str, float] = {}

    def _coded(self, name: str) -> str:
        kind, zero = next(self.codes)
        scale = np.float32(8 / 2 ** np.iinfo(kind).bits)
        code = [self.const(scale), self.const(zero, kind)]
        q = self._raw("QuantizeLinear", [name, *code], self.shapes[name])
        found = self._raw("DequantizeLinear", [q, *code], self.shapes[name])
        self.scales[found] = float(scale)
        return found

    def product(
        self, kind: str, x: str, shape: tuple[int, ...], axis: int, zero: int = 0, *,
        bias: bool = True, **attributes: object,
    ) -> str:  # fmt: skip
        """A product by weights quantized along `axis`, of one scale where they have a zero point,
        with an int32 bias, and a Relu."""
        count, kept = shape[axis], [1] * len(shape)
        kept[axis] = -1
        scales = np.linspace(0.3, 1.0, 1 if zero else count, dtype="f4") / np.float32(
            127 * np.sqrt(np.prod(shape) / count)
        )
        raw = self.rng.integers(-127, 128, shape)
        dtype = "uint8" if zero else "int8"
        weights = self.const((raw + zero).clip(0 if zero else -127, 255 if zero else 127), dtype)
        zeros = self.const(np.full(scales.shape, zero), dtype)
        inputs = [x, self._raw("DequantizeLinear", [weights, self.const(scales), zeros], shape,
                               axis=axis)]  # fmt: skip
        if bias:
            width = count * int(str(attributes.get("group", 1))) if "Transpose" in kind else count
            steps = np.broadcast_to(np.float32(self.scales[x]) * scales, (width,)).copy()
            numbers = np.rint(self.rng.standard_normal(width) / steps).astype("i4")
            code = [self.const(numbers), self.const(steps), self.const(np.zeros(width, "i4"))]
            inputs.append(self._raw("DequantizeLinear", code, (width,), axis=0))
        made = self._raw(kind, inputs, None, **attributes)
        return self._coded(self._raw("Relu", [made], None))


def image(codes: Sequence[Code]) -> onnx.ModelProto:
    """Convolutions of all kinds at odd extents, with uneven borders, and what lies between."""
    net = MixedNet(codes)
    x = net.input(1, 5, 9, 7)
    x = net.product("Conv", x, (6, 5, 3, 3), 0, strides=[2, 2], pads=[1, 0, 2, 1])
    y = net.product("Conv", x, (6, 1, 3, 3), 0, group=6, dilations=[2, 1], pads=[2, 1, 2, 1])
    y = net.op("Add", x, net.op("MaxPool", y, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    x = net.op("Concat", net.product("Conv", y, (4, 3, 1, 1), 0, 127, group=2), x, axis=1)
    x = net.product("ConvTranspose", x, (10, 3, 3, 2), 1, strides=[2, 2], pads=[1, 0, 0, 1])
    return net.model(net.product("Conv", x, (7, 3, 2, 5), 0, 131, bias=False, strides=[1, 3]))


def rows(codes: Sequence[Code]) -> onnx.ModelProto:
    """Matrix products at odd extents, with and without biases."""
    net = MixedNet(codes)
    x = net.product("MatMul", net.input(9, 37), (37, 19), 1, bias=False)
    x = net.product("Gemm", x, (21, 19), 0, transB=1)
    x = net._raw("Reshape", [x, net.const([3, 3, 21], "i8")], (3, 3, 21))
    return net.model(net.product("MatMul", net._coded(x), (21, 5), 1, 124, bias=False))


def compared(model: onnx.ModelProto, arch: Arch, feeds: dict[str, Array]) -> CompileResult:
    """The compiled `model`, whose results are at most one step off ONNX Runtime's, few of them."""
    compiled = compile_model(model, arch, CompileOptions(dtype="int8", stages=stages_for(0)))
    program = from_bytes(encoded(compiled.program, arch)).program
    verify(program, arch)
    made = execute(program, feeds, arch, host=run_node)
    scales = {c.name: numpy_helper.to_array(c) for c in model.graph.initializer}
    for name, wanted in reference(model, feeds).items():
        last = next(node for node in model.graph.node if name in node.output)
        off = np.abs(made[name] - wanted) / scales[last.input[1]]
        assert off.max() < 1.01
        assert (off > 0.5).mean() < 0.02
    return compiled


def products(compiled: CompileResult) -> set[tuple[str, str]]:
    """Types that the array multiplies."""
    items = (item for core in compiled.program.cores for item, _ in instructions(core))
    return {(i.a.dtype, i.w.dtype) for i in items if isinstance(i, MatrixInstruction)}


@pytest.mark.parametrize("arch", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("codes", [WORDS, SEAMS], ids=["words", "seams"])
@pytest.mark.parametrize("build", [image, rows])
def test_it_computes_what_onnx_runtime_does(
    build: Callable[[Sequence[Code]], onnx.ModelProto], codes: Sequence[Code], arch: Arch
) -> None:
    model = build(codes)
    compiled = compared(model, arch, feeds_of(model))
    assert ("int16" in arch.matrix.rate) == any("16" in left for left, _ in products(compiled))
    assert bool(compiled.host) == (arch.name in ("bytes", "integers"))


def summed(weights: Array, bias: int, kind: str, zero: int) -> onnx.ModelProto:
    """Sums of activations times `weights`, and times a third of them, and biases."""
    columns = np.stack([weights, weights // 3], 1).astype("i1")
    text = f"""net ({kind}[2, {len(weights)}] x) => (float[2, 2] y) <
        float s = {{{2.0**-15}}}, float t = {{{2.0**-12}}}, float u = {{{2.0**-27}}},
        {kind} z = {{{zero}}}, int8 nil = {{0}}, int32[2] n = {{{bias}, {-bias}}},
        float v = {{{2.0**-10}}}, int16 middle = {{-3}}
    > {{
        a = DequantizeLinear (x, s, z) w = DequantizeLinear (c, t, nil)
        b = DequantizeLinear (n, u) p = Gemm (a, w, b)
        q = QuantizeLinear (p, v, middle) y = DequantizeLinear (q, v, middle)
    }}"""
    model = model_of(text, 21)
    model.graph.initializer.append(numpy_helper.from_array(columns, "c"))
    return model


SAME, HALVES = np.full(512, 127), np.repeat([127, -127], 256)


@pytest.mark.parametrize(
    ("weights", "kind", "zero", "most"),
    [(SAME, "int16", 0, -(2**24)), (SAME, "int16", -1, 2**24 - 1), (HALVES, "uint16", 0, 16809727),
     (-SAME[:258], "int16", -32768, -163838)],
)  # fmt: skip
def test_sums_are_integers_as_far_as_the_weights_prove_that_they_fit(
    weights: Array, kind: str, zero: int, most: int
) -> None:
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    feeds = {"x": np.where([weights > 0, weights < 0], high, low).astype(kind)}
    for bias, native in ((most, True), (most + np.sign(most), False)):
        model = summed(weights, bias, kind, zero)
        compiled = compared(model, MACHINES["finishing"], feeds)
        assert products(compiled) == ({(kind, "int8")} if native else set())
        assert not compiled.host
        reasons = [node.reason for node in compared(model, MACHINES["integers"], feeds).host]
        assert any("2.15e+09 > 2^31" in reason for reason in reasons) != native


def test_an_array_of_halves_takes_them_as_halves() -> None:
    arch = machine(types=("fp16",), matrix=DIRECT | {"rate": {"fp16": 1.0}})
    weights = np.arange(-127, 128, 3)
    model = summed(weights, 2**20, "uint16", 32000)
    given = np.random.default_rng(1).integers(0, 2**15, (2, 85))
    feeds = {"x": (given + 2**15 * (weights > 0)).astype(np.uint16)}
    compiled = compile_model(model, arch, CompileOptions(dtype="fp16", stages=stages_for(0)))
    verify(compiled.program, arch)
    assert products(compiled) == {("fp16", "fp16")}
    made, wanted = execute(compiled.program, feeds, arch)["y"], reference(model, feeds)["y"]
    assert np.abs(made - wanted).max() < np.abs(wanted).max() / 2**9
