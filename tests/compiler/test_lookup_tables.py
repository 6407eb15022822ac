"""Functions of 8-bit numbers as one look-up: cycles by hand, the same answer as the functions give,
and what is left alone.
"""

from __future__ import annotations

import numpy as np
import pytest
from blocks import conv
from machines import WRITEBACK, changed, machine
from networks import Checked, Net, array_cycles, check, repeated

from compiler.codegen.nodes import instructions
from simmodel.arch.units import Delay
from simmodel.execute import execute
from simmodel.isa.functions import UNARY

PLAIN = machine(types=("int8",))
FILL = Delay.parse("10 cycles")
TABLES = changed(PLAIN, "vector", table=FILL)
SHAPE = (1, 16, 8, 8)


def forms(found: Checked) -> list[str]:
    """What the vector engine computes, without conversions at the ends."""
    named = dict.fromkeys(each.form for each in instructions(found.compiled.program.cores[0]))
    return [form for form in named if form.startswith("vector.") and form != "vector.unary.move"]


def vector_cycles(found: Checked) -> int:
    return sum(each.busy for each in found.trace.engines if each.engine == "vector")


def _silu(net: Net, x: str) -> str:
    return net.op("Mul", x, net.op("Sigmoid", x))


def _gelu(net: Net, x: str) -> str:
    half = net.op("Mul", x, net.const(0.5, "f4"))
    inner = net.op("Erf", net.op("Mul", x, net.const(0.7071, "f4")))
    return net.op("Mul", half, net.op("Add", inner, net.const(1.0, "f4")))


@pytest.mark.parametrize("act", [_silu, _gelu])
def test_a_chain_with_roundings_between_is_one_look_up(act: object) -> None:
    net = Net(quantized=True)
    network = net.model(act(net, net.input(*SHAPE)))  # type: ignore[operator]
    plain, tables = check(network, PLAIN, "int8"), check(network, TABLES, "int8")
    assert forms(tables) == ["vector.unary.lookup"]
    assert tables.trace.cycles < plain.trace.cycles
    x = {"x0": np.random.default_rng(2).uniform(-6, 6, SHAPE).astype("f4")}
    ((name, made),) = execute(tables.compiled.program, x, TABLES).items()
    np.testing.assert_array_equal(made, execute(plain.compiled.program, x, PLAIN)[name])


def test_a_look_up_takes_the_cycles_of_a_simple_operation_behind_its_table() -> None:
    """1024 numbers on 16 lanes are 64 vectors: quantized, looked up in four tiles, made real. The
    table takes 10 cycles for each instruction; sigmoid takes 8 for each vector."""
    net = Net(quantized=True)
    network = net.model(net.op("Sigmoid", net.input(*SHAPE)))
    found = check(network, TABLES, "int8")
    turns = [n for i, n in repeated(found.compiled.program.cores[0]) if "lookup" in i.form]
    assert (turns, vector_cycles(found)) == ([4], 3 * 64 + 4 * 10)
    assert vector_cycles(check(network, PLAIN, "int8")) == (2 + 8) * 64


def test_sums_of_two_tensors_and_what_others_read_stay() -> None:
    net = Net(quantized=True)
    x, y = net.input(*SHAPE), net.input(*SHAPE)
    s = net.op("Sigmoid", net.op("Add", x, y))
    found = check(net.model(net.op("Mul", s, x), s), TABLES, "int8")
    assert forms(found) == ["vector.binary.add", "vector.unary.lookup", "vector.binary.mul"]


def test_entries_are_found_by_the_byte_of_a_code() -> None:
    look = UNARY["lookup"].meaning(exact=True)
    entries = np.arange(256) - 128.0
    assert look(np.array([0, 127, -128, -1, 255]), *entries).tolist() == [-128, -1, 0, 127, 127]


def test_codes_without_a_value_do_no_harm() -> None:
    net = Net(quantized=True)
    x = net.op("Relu", net.input(*SHAPE))
    root = net.op("Sqrt", net.op("Exp", net.op("Log", net.op("Add", x, net.const(1.0, "f4")))))
    assert forms(check(net.model(root), TABLES, "int8")) == ["vector.unary.lookup"]


def test_an_array_looks_its_results_up_on_the_way_out() -> None:
    """x * sigmoid(x) behind a convolution: the vector engine converts what comes and goes and fills
    borders; the array takes as long as without."""
    shape = (1, 16, 24, 24)
    net = Net(quantized=True)
    network = net.model(_silu(net, conv(net, net.input(*shape), 16, (3, 3))))
    plain = changed(machine(types=("int8",), matrix={"writeback": WRITEBACK}), "vector", table=FILL)
    tables = changed(plain, "matrix", writeback=(*WRITEBACK, "table"))
    apart, drained = check(network, plain, "int8"), check(network, tables, "int8")
    assert forms(apart) == ["vector.splat", "vector.unary.lookup"]
    assert forms(drained) == ["vector.splat"]
    assert array_cycles(drained, tables) == array_cycles(apart, plain)
    assert drained.trace.cycles < apart.trace.cycles
    x = {"x0": np.random.default_rng(3).uniform(-6, 6, shape).astype("f4")}
    ((name, made),) = execute(drained.compiled.program, x, tables).items()
    np.testing.assert_array_equal(made, execute(apart.compiled.program, x, plain)[name])
