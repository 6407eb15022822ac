"""Activations in a microscaling format: blocks that the vector engine makes and products read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from machines import changed
from networks import Net, check
from onnx import helper
from test_microscaling import MACHINES

import archgen
import simmodel.isa.vector
from archgen.models.encodings import round_operands
from archgen.models.errors import ModelError
from archgen.models.load import open_model
from compiler.frontend.microscaling import microscaling, rounding
from compiler.numerics.nest_error import against_order, forward_error
from compiler.tensor_ir.nest import Access, Dim, Nest, at
from simmodel.arch.dtype import NUMPY, from_blocks, microscaled, to_blocks
from simmodel.arch.element_types import MX_BITS, size_of
from simmodel.arch.record import Arch
from simmodel.arch_rules import problems
from simmodel.isa import Gemm, Reduce
from simmodel.isa.base import instructions
from simmodel.isa.region import Address, Operand


def able(arch: Arch, kind: str) -> Arch:
    """`arch` with an array that multiplies blocks of `kind`, at the rate of fp16."""
    typed = changed(arch, "vector", types=(*arch.vector.types, kind))
    return changed(typed, "matrix", rate={**arch.matrix.rate, kind: 0.5})


def operand(dtype: str, *shape: int, memory: str = "local") -> Operand:
    strides = np.empty(shape, f"V{size_of(dtype)}").strides
    return Operand(memory, Address(0), shape, strides, dtype)


@pytest.mark.parametrize("kind", MX_BITS)
@pytest.mark.parametrize("version", [13, 18])
def test_operators_of_onnx_give_the_numbers_of_a_block(kind: str, version: int) -> None:
    random = np.random.default_rng(1)
    values = random.normal(size=(2, 64, 3, 96)) * 10.0 ** random.integers(-9, 5, (2, 64, 3, 1))
    values[0, 0, 0] = 2.0 ** random.integers(-20, 20, 96)  # logarithms are off by one beside these
    values[0, 0, 1] = 0
    given = values.astype(np.float32)
    nodes = [rounding(kind, "x", "rows"), rounding(kind, "x", "channels", 64)]
    ports = [helper.make_tensor_value_info(n, 1, given.shape) for n in ("x", "rows", "channels")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ports[:1], ports[1:]), ir_version=9,
        functions=[microscaling(kind, version)],
        opset_imports=[helper.make_opsetid("", version), helper.make_opsetid("archgen", 1)],
    )  # fmt: skip
    onnx.checker.check_model(model)
    rows, channels = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": given})
    wanted = np.moveaxis(microscaled(np.moveaxis(given, 1, -1), kind), -1, 1)
    np.testing.assert_array_equal(rows, microscaled(given, kind))
    np.testing.assert_array_equal(channels, wanted)


def test_instructions_by_hand() -> None:
    # 4 x 64 by 64 x 8: two blocks of 32 in 33 bytes each, as many cycles as 64 numbers of fp16.
    arch = able(MACHINES["conv"], "mxfp8")
    a, w, sums = operand("mxfp8", 1, 1, 4, 2), operand("mxfp8", 2, 8), operand("fp32", 1, 1, 4, 8)
    product = Gemm(engine="matrix", origin=0, dst=sums, a=a, w=w)
    plain = Gemm(
        engine="matrix", origin=0, dst=sums, a=operand("fp16", 1, 1, 4, 64),
        w=operand("fp16", 64, 8),
    )  # fmt: skip
    assert not [*product.contract()]
    assert product.macs() == plain.macs() == 4 * 64 * 8
    assert product.cycles(arch) == plain.cycles(arch)
    assert (a.bytes, w.bytes) == (4 * 2 * 33, 2 * 8 * 33)
    random = np.random.default_rng(2)
    left, right = random.normal(size=(1, 1, 4, 64)), random.normal(size=(8, 64))
    views = {
        id(a): to_blocks(left, "mxfp8"), id(w): to_blocks(right, "mxfp8").T,
        id(sums): np.zeros((1, 1, 4, 8), np.float32),
    }  # fmt: skip
    product.execute(lambda each: views[id(each)])
    wanted = microscaled(left, "mxfp8") @ microscaled(right, "mxfp8").T
    np.testing.assert_allclose(views[id(sums)], wanted, 1e-5, 1e-5)
    # 4 x 2 blocks of 32 numbers, 16 lanes of fp16: 16 vectors of the cost of a multiplication.
    wide = changed(arch, "vector", lanes=16)
    made, x = operand("mxfp8", 4, 2, 1), operand("fp16", 4, 2, 32)
    blocks = Reduce(engine="vector", origin=0, function="blocks", dst=made, a=x)
    assert not [*blocks.contract()]
    assert blocks.cycles(wide) == 16 * wide.vector.cost.multiply
    empty = np.zeros((4, 2, 1), NUMPY["mxfp8"])
    views = {id(x): left.reshape(4, 2, 32).astype(np.float16), id(made): empty}
    blocks.execute(lambda each: views[id(each)])
    rounded = microscaled(views[id(x)].astype(np.float32), "mxfp8")
    np.testing.assert_array_equal(from_blocks(views[id(made)])[..., 0, :], rounded)


@pytest.mark.parametrize(
    ("function", "made", "read"),
    [
        ("blocks", ("mxfp8", 4, 1), ("fp16", 4, 16)),  # half a block
        ("blocks", ("fp16", 4, 1), ("fp16", 4, 32)),
        ("sum", ("mxfp8", 4, 1), ("fp16", 4, 32)),
        ("sum", ("fp16", 4, 1), ("mxfp8", 4, 32)),
    ],
)
def test_what_no_engine_does_with_blocks(function: str, made: Any, read: Any) -> None:
    broken = Reduce(
        engine="vector", origin=0, function=function, dst=operand(*made), a=operand(*read)
    )
    assert {rule for rule, _ in broken.contract()} == {"type"}


def products(rows: int = 3) -> onnx.ModelProto:
    """x (rows x 64) -> 96 -> 32."""
    net = Net(seed=5)
    hidden = net.op("Relu", net.op("MatMul", net.input(rows, 64), net.weight(64, 96)))
    return net.model(net.op("MatMul", hidden, net.weight(96, 32)))


def convolutions() -> onnx.ModelProto:
    net = Net(seed=2)
    weights = net.weight(64, 32, 3, 3), net.vector(64)
    hidden = net.op("Relu", net.op("Conv", net.input(1, 32, 7, 7), *weights, pads=[1, 1, 1, 1]))
    return net.model(net.op("Conv", hidden, net.weight(8, 64, 1, 1)))


def groups() -> onnx.ModelProto:
    """Two groups of 32 channels: of mxfp8 one block for one output each."""
    net = Net(seed=9)
    return net.model(net.op("Conv", net.input(1, 64, 6, 6), net.weight(2, 32, 3, 3), group=2))


def attention() -> onnx.ModelProto:
    """Projections share the blocks of x; products of activations stay those of real values."""
    net = Net(seed=7)
    x = net.input(2, 8, 64)
    q, k, v = (net.op("MatMul", x, net.weight(64, 64)) for _ in range(3))
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1]))
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
    return net.model(net.op("Add", x, net.op("MatMul", mixed, net.weight(64, 64))))


def studied(arch: Arch, path: Path, model: onnx.ModelProto, kind: str = "mxfp8") -> Any:
    onnx.save(model, path / "net.onnx")
    spec = f"{path}/net.onnx:activations={kind}"
    return archgen.study(
        arch, spec, dtype="fp16", effort=0, plots=False, executor="here"
    ).frame.iloc[0]


@pytest.mark.parametrize("model", [groups(), attention()], ids=["groups", "attention"])
def test_forms_of_products(model: onnx.ModelProto, tmp_path: Path) -> None:
    row = studied(able(MACHINES["cores"], "mxfp8"), tmp_path, model)
    assert row["verified"] and row["host_ops"] == 0


@pytest.mark.parametrize("name", MACHINES)
def test_networks_have_right_answers(name: str, tmp_path: Path) -> None:
    """Each operator against ONNX Runtime, which computes the function of ONNX's own operators."""
    for model, kind in ((products(), "mxfp8"), (convolutions(), "bfp8")):
        row = studied(able(MACHINES[name], kind), tmp_path, model, kind)
        assert row["verified"] and row["host_ops"] == 0


def test_other_roundings_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def coarser(values: Any, kind: str) -> Any:
        return to_blocks(microscaled(values, "mxfp4"), kind)

    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path))
    monkeypatch.setattr(simmodel.isa.vector, "to_blocks", coarser)
    row = studied(able(MACHINES["conv"], "mxfp8"), tmp_path, products())
    assert not row["verified"]


def test_errors_of_blocks_by_hand() -> None:
    # The largest, 448, has the scale 1: steps of 2 between 16 and 32. 17 is a tie, 19.9 is none.
    read = Access("x", (at(0), at(1)))
    nest = Nest("y", (Dim("b", 1), Dim("r", 32)), 1, "move", (read,), "blocks")
    values, error = np.zeros((1, 32), np.float32), np.zeros((1, 32), np.float32)
    tensors = {"x": values, "y": np.zeros(1, NUMPY["mxfp8"])}
    values[0, :3] = 448, 17, 19.9
    error[0, 2] = 0.01
    how = against_order("fp32")
    assert forward_error(nest, tensors, {"x": error}, how) is None
    error[0, 1] = 0.01
    np.testing.assert_array_equal(forward_error(nest, tensors, {"x": error}, how), [2])
    # 511.9 is limited to 448, 512 is none of the scale 1, and 512 of the scale 2.
    values[0, 0], error[0, 0] = 511.9, 0.2
    np.testing.assert_array_equal(forward_error(nest, tensors, {"x": error}, how), [64])


def test_bytes() -> None:
    # 64 x 64 numbers of fp16 and 64 x 32 weights in 17 bytes for 32; then 64 x 64 in as many.
    net = Net(seed=3)
    model = net.model(net.op("MatMul", net.input(64, 64), net.weight(64, 32)))
    round_operands(model, {"activations": "mxfp4"})
    found = check(model, able(MACHINES["conv"], "mxfp4"), "fp16")
    assert found.trace.traffic["dram.read"] == 64 * 64 * 2 + 64 * 32 * 17 // 32
    made = [
        i.dst.bytes * math.prod(count for _, count in loops)
        for core in found.compiled.program.cores for i, loops in instructions(core)
        if isinstance(i, Reduce) and i.dst.dtype == "mxfp4"
    ]  # fmt: skip
    assert sum(made) == 64 * 64 * 17 // 32


def test_machines_without_such_products_leave_them_to_the_host(tmp_path: Path) -> None:
    row = studied(MACHINES["conv"], tmp_path, products())
    assert row["verified"] and row["host_ops"] > 0
    assert "activations=mxfp8: vector.types of m has none, so the host" in row["note"]
    arch = changed(MACHINES["conv"], "matrix", rate={"fp16": 0.5, "int8": 1.0, "mxfp8": 0.5})
    assert "vector.types needs it" in next(iter(problems(arch))).message


def test_products_of_the_same_blocks_go_to_the_host_ahead_of_what_reads_one(tmp_path: Path) -> None:
    """Array-sized products of 16 numbers hold no block of 32."""
    net = Net(seed=4)
    x = net.input(1, 8, 64)
    first = net.op("Tanh", net.op("MatMul", x, net.weight(64, 64)))
    second = net.op("MatMul", x, net.weight(64, 64))
    arch = changed(able(MACHINES["tile"], "mxfp8"), "matrix", rows=16, depth=1)
    row = studied(arch, tmp_path, net.model(net.op("Add", first, second)))
    assert row["verified"] and row["host_ops"] > 0


def test_a_network_is_asked_for_with_such_activations(tmp_path: Path) -> None:
    model = open_model("squeezenet:image=32,weights=mxfp4,activations=mxfp8")
    kinds = [node.op_type for node in model.proto.graph.node]
    # 26 convolutions, the first of 3 channels; squeezed ones of 16 and 48 are no whole blocks, and
    # the two expansions of one squeezed value share the node that rounds it.
    assert kinds.count("mxfp8") > 8 and kinds[0] == "Conv"
    with pytest.raises(ModelError, match=r"activations=mxfp9: expected .*; did you mean 'mxfp8'"):
        open_model("squeezenet:activations=mxfp9")
    with pytest.raises(ModelError, match="activations are given twice"):
        open_model("squeezenet:activations=mxfp8,activations=mxfp4")
