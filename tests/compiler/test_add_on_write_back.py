"""Residuals that the array adds to its results on the way out (`writeback: add`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from blocks import conv
from machines import WRITEBACK, changed, machine
from networks import Checked, Net, array_cycles, check
from replay import read, replay
from test_vector_functions import forms

from archgen.schema import load_arch
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.isa import Gemm
from simmodel.isa.region import Address, Operand

FORMER = Path(__file__).parents[1] / "archs/nvdla-2048.yaml"


def operand(dtype: str, *shape: int, **code: Any) -> Operand:
    strides = np.empty(shape, dtype).strides
    return Operand("local", Address(0), shape, strides, dtype, **code)


def test_an_instruction_by_hand() -> None:
    """Eight products of 2 by 1 are 16, times 0.7 is 11.2: 11 steps of 0.5, or 5.5. (raw + 1) x 0.25
    are added: 0.25 to 2, and -30. What is not below 0 is in steps of 0.5, and 2 are added."""
    arch = adding(machine(types=("int8",), matrix={"writeback": WRITEBACK}))
    a, w = operand("int8", 1, 1, 2, 8), operand("int8", 8, 4)
    factor = Operand("local", Address(0), (1,), (4,), "fp32")
    more = operand("int8", 1, 1, 2, 4, scale=0.25, zero=-1)
    out = operand("int8", 1, 1, 2, 4, scale=0.5, zero=2)
    item = Gemm(
        engine="matrix", origin=0, dst=out, a=a, w=w, multiplier=factor, low=0.0, added=more,
        middle=(1.0, 0.5, 3.0),
    )  # fmt: skip
    raw = np.array([0, 1, 2, 3, 4, 5, 7, -121], np.int8).reshape(1, 1, 2, 4)
    views = {
        id(a): np.full((1, 1, 2, 8), 2, np.int8), id(w): np.ones((8, 4), np.int8),
        id(factor): np.array([0.7], np.float32), id(more): raw, id(out): np.zeros_like(raw),
    }  # fmt: skip
    item.execute(lambda each: views[id(each)])
    # 5.75 is 11.5 steps, so 12, and 2 more; 6 is 12; 6.25 is 12.5, so 12; 6.5 is 13, 6.75 13.5.
    assert views[id(out)].ravel().tolist() == [14, 14, 14, 15, 16, 16, 17, 2]
    assert not [*item.contract()] and item.unencodable(arch) is None
    assert [t.bytes for t in item.traffic(arch) if t.operand is more] == [16]  # width of a bank
    plain = changed(arch, "matrix", writeback=WRITEBACK)
    assert item.unencodable(plain) == "no addition on write-back"


def test_nvdla_is_the_former_file_and_additions() -> None:
    """The file as it was has its program still; with `add` the residual network is quicker."""
    former, now = load_arch(FORMER), load_arch("nvdla-2048")
    assert changed(now, "matrix", writeback=WRITEBACK) == former
    record = replay((str(FORMER), "residual", "int8"))
    assert record.cycles > read()["nvdla-2048", "residual", "int8"].cycles


def adding(arch: Arch) -> Arch:
    return changed(arch, "matrix", writeback=(*WRITEBACK, "add"))


def residual(quantized: bool = True) -> onnx.ModelProto:
    """Two convolutions beside a shortcut, then one that reads the sum."""
    net = Net(quantized=quantized)
    x = net.input(1, 16, 9, 9)
    inner = net.op("Relu", conv(net, x, 16, (3, 3)))
    made = net.op("Relu", net.op("Add", conv(net, inner, 16, (3, 3)), x))
    return net.model(conv(net, made, 8, (1, 1)))


CONV = {"writeback": WRITEBACK}
FORMS: dict[str, dict[str, Any]] = {
    "conv": {"matrix": CONV},
    "gemm": {"matrix": CONV | {"granularity": "gemm", "max_pixels": 16}},
    "tile": {"matrix": CONV | {"granularity": "tile", "max_pixels": 8}},
    "blocks": {"matrix": CONV | {"max_pixels": 20, "units": 2}},
    "small": {"matrix": CONV | {"granularity": "tile"}, "local": {"size": 4096}},
    "cores": {"matrix": CONV, "cores": 2, "sync": "interlock"},
    "accumulators": {"matrix": CONV | {"granularity": "tile"}, "accumulators": 4096},
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_products_give_the_numbers_of_two_instructions(form: str) -> None:
    plain = machine(types=("int8",), **FORMS[form])
    model = residual()
    apart, added = check(model, plain, "int8"), check(model, adding(plain), "int8")
    assert "vector.binary.add" in forms(apart) and "vector.binary.add" not in forms(added)
    x = {"x0": np.random.default_rng(3).uniform(-3, 3, (1, 16, 9, 9)).astype("f4")}
    ((name, made),) = execute(added.compiled.program, x, adding(plain)).items()
    np.testing.assert_array_equal(made, execute(apart.compiled.program, x, plain)[name])
    if form == "conv":
        assert array_cycles(added, adding(plain)) == array_cycles(apart, plain)
        assert added.trace.cycles < apart.trace.cycles


def test_real_values() -> None:
    plain = machine(types=("fp16",), matrix={"writeback": WRITEBACK, "rate": {"fp16": 1.0}})
    found: Checked = check(residual(False), adding(plain), "fp16")
    assert "vector.binary.add" not in forms(found)


def test_what_others_read_and_sums_of_one_stay() -> None:
    arch = adding(machine(types=("int8",), matrix={"writeback": WRITEBACK}))
    net = Net(quantized=True)
    x = net.input(1, 16, 8, 8)
    seen = conv(net, x, 16, (3, 3))
    twice = conv(net, x, 16, (1, 1))
    model = net.model(net.op("Add", seen, x), net.op("Add", twice, twice), seen)
    assert forms(check(model, arch, "int8")).count("vector.binary.add") == 1
