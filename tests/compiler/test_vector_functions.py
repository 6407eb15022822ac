"""Functions of the vector engine: fused into one instruction whatever order they stand in, as
look-up tables, as chains, and on an engine of their own: cycles worked out by hand (vectors of 16
lanes), and the same answers as the functions give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from blocks import conv
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import WRITEBACK, changed, machine
from nest_reader import parse_graph
from networks import Checked, Net, array_cycles, check, feeds_of, repeated

from compiler.api import CompileOptions
from compiler.codegen.nodes import instructions
from compiler.options import Stages
from compiler.target.fuse_functions import FuseFunctions
from compiler.target.start_sums import FACTORS, LARGEST, StartSums, as_digits
from compiler.target.vector_functions import ExpandFunctions, match, normal
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import Nest, NestGraph, Storage, Tensor
from simmodel.arch.base import CHAINS
from simmodel.arch.record import Arch, FormLimits, Isa, VectorCost
from simmodel.arch.units import Delay
from simmodel.execute import execute
from simmodel.isa.functions import BINARY, TERNARY, UNARY, functions_in, term_of
from simmodel.trace import Trace

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


APART = machine(types=("int8",), accumulators=8192, matrix={"rate": {"int8": 1.0}})
CHAINED = changed(APART, "isa", chains=("add_mul",))


def test_bias_and_scale_of_sums_take_one_pass() -> None:
    """16 channels of 8 x 8 pixels on 16 lanes are 64 vectors. The input is quantized, sums get bias
    and scale, and the result is made real: 4 passes apart, 3 chained, without 1024 values of fp32
    that go to local memory and come from there.
    """
    net = Net(quantized=True)
    network = net.model(conv(net, net.input(1, 16, 8, 8), 16, (1, 1)))
    apart, chained = check(network, APART, "int8"), check(network, CHAINED, "int8")
    assert [vector_cycles(apart), vector_cycles(chained)] == [4 * 64, 3 * 64]
    assert apart.trace.traffic["local.write"] - chained.trace.traffic["local.write"] == 1024 * 4
    assert chained.trace.cycles < apart.trace.cycles
    x = {"x0": np.random.default_rng(1).standard_normal((1, 16, 8, 8)).astype("f4")}
    ((name, made),) = execute(chained.compiled.program, x, CHAINED).items()
    np.testing.assert_array_equal(made, execute(apart.compiled.program, x, APART)[name])


@pytest.mark.parametrize("grain", ["gemm", "tile"])
def test_sums_start_from_their_bias(grain: str) -> None:
    """A pass of 64 vectors less, 2 instructions more that lay the factors of the digits. The row of
    16 columns is made once, of 4 digits each."""
    net = Net(quantized=True)
    network = net.model(conv(net, net.input(1, 16, 8, 8), 16, (1, 1)))
    arch = changed(APART, "matrix", granularity=grain)
    without = CompileOptions(stages=Stages(starts=StartSums(enabled=False)))
    begun, apart = check(network, arch, "int8"), check(network, arch, "int8", without)
    assert [vector_cycles(apart), vector_cycles(begun)] == [4 * 64, 3 * 64 + 2]
    assert begun.trace.macs - apart.trace.macs == 16 * 4
    x = feeds_of(network)
    ((name, made),) = execute(begun.compiled.program, x, arch).items()
    np.testing.assert_array_equal(made, execute(apart.compiled.program, x, arch)[name])


def test_a_residual_reads_sums_that_start_from_their_bias() -> None:
    """1 024 sums are 64 vectors: one pass adds the residual to what is in the accumulators, behind
    one instruction that lays the factors of the bias's two fp16 digits. Apart, the bias is a pass
    of its own, whose real results go through local memory."""
    net = Net()
    block = net.op("Add", conv(net, net.input(1, 16, 8, 8), 16, (1, 1)), net.input(1, 16, 8, 8))
    network = net.model(net.op("Relu", block))
    arch = machine(types=("fp16",), accumulators=8192, matrix={"granularity": "gemm"})
    without = CompileOptions(stages=Stages(starts=StartSums(enabled=False)))
    begun, apart = check(network, arch, "fp16"), check(network, arch, "fp16", without)
    assert [vector_cycles(apart), vector_cycles(begun)] == [2 * 64, 64 + 1]
    assert begun.trace.macs - apart.trace.macs == 16 * 2
    written = [found.trace.traffic["local.write"] for found in (apart, begun)]
    assert written[0] - written[1] == 1024 * 4 - 16  # the factors take a word of a bank


@pytest.mark.parametrize("most", [LARGEST, LARGEST + 1])
def test_what_four_digits_hold(most: int) -> None:
    """1 and three times 255, each up to 127 times."""
    values = np.array([0, 1, -128, 255 * 128 + 5, most, -most])
    bias = Tensor("b", values.shape, "int32", Storage("b", 0, (1,)), digits="int8")
    digits = as_digits(values, bias).view(np.int8).reshape(-1, 4).astype(int)
    assert ((digits @ FACTORS == values) == (np.abs(values) <= 127 * (1 + 3 * 255))).all()


def test_every_chain_is_a_function() -> None:
    assert set(CHAINS) <= {*TERNARY}


def with_engine(**fields: Any) -> Arch:
    """A core with an engine of 16 lanes that takes a cycle for each vector of a function."""
    engine = {"lanes": 16, "cost": {"special": 1}, **fields}
    cube = {"rows": 8, "cols": 8, "depth": 8, "rate": {"fp16": 1.0}}
    local = {"size": 1 << 18, "banks": 16, "bank_width": 32}
    return machine(
        types=("fp16",), matrix=cube, vector={"lanes": 16}, local=local,
        engines={"functions": engine},
    )  # fmt: skip


def busy(trace: Trace) -> dict[str, int]:
    return {e.engine: e.busy for e in trace.engines if e.busy}


def tanh() -> onnx.ModelProto:
    net = Net()
    return net.model(net.op("Tanh", net.input(64, 64)))


@pytest.mark.parametrize(
    ("fields", "engine", "cycles"),
    [
        ({}, "functions", 256),
        ({"cost": {"special": 8}}, "functions", 256 * 8),  # as fast: the vector engine stays free
        ({"cost": {"special": 9}}, "vector", 256 * 8),
        ({"lanes": 1}, "vector", 256 * 8),
        ({"forms": "vector.unary.exp"}, "vector", 256 * 8),
        ({"types": ["int8", "fp32"]}, "vector", 256 * 8),
    ],
)
def test_a_function_runs_where_it_takes_fewer_cycles(
    fields: dict[str, Any], engine: str, cycles: int
) -> None:
    """64 x 64 elements are 256 vectors of 16."""
    found = busy(check(tanh(), with_engine(**fields), "fp16").trace)
    other = {"functions": "vector", "vector": "functions"}[engine]
    assert (found[engine], found.get(other, 0)) == (cycles, 0)


def test_both_work_at_the_same_time() -> None:
    """Of 128 k elements the vector engine adds 8192 vectors in as many cycles, 8 for each of which
    the other engine takes for tanh: alone the vector engine takes the sum."""
    net = Net()
    y = net.op("Tanh", net.op("Add", net.input(512, 256), net.weight(256)))
    alone = check(net.model(y), with_engine(lanes=1), "fp16").trace
    assert busy(alone)["vector"] == 8192 * 9
    both = check(net.model(y), with_engine(cost={"special": 8}), "fp16").trace
    assert (busy(both)["vector"], busy(both)["functions"]) == (8192, 8192 * 8)
    assert 8192 * 8 < both.cycles < 8192 * 8.2 < alone.cycles


def test_a_product_is_finished_while_the_tile_before_it_has_its_function() -> None:
    """The array, the vector engine that adds the bias and the engine of functions work on three
    tiles."""
    net = Net()
    x = net.op("MatMul", net.input(512, 64), net.weight(64, 256))
    y = net.op("Tanh", net.op("Add", x, net.weight(256)))
    alone = check(net.model(y), with_engine(lanes=1), "fp16").trace
    both = check(net.model(y), with_engine(cost={"special": 8}), "fp16").trace
    assert busy(both)["functions"] == 8192 * 8
    assert 8192 * 8 < both.cycles < 8192 * 8.5 < alone.cycles


WIDE = machine(types=("fp32",), vector={"types": ("fp32", "fp16"), "cost": VectorCost(divide=9)})
MADE_OF_SEVERAL = [
    (name, count)
    for count, table in enumerate((UNARY, BINARY, TERNARY), 1)
    for name, each in table.items()
    if each.does and len(functions_in(each.terms[0])) > 1
]


def graph(*lines: str, shape: str = "4, 8", outputs: tuple[str, ...] = ("y",)) -> NestGraph:
    """Nests over fp32 tensors of one shape; what is read and not made is an input."""
    extents = [int(n) for n in shape.split(",")]
    strides = ", ".join(str(int(np.prod(extents[i + 1 :]))) for i in range(len(extents)))
    made = [line.split("[")[0] for line in lines]
    inputs = [name for name in "abcg" if any(f"{name}[" in line for line in lines)]
    text = ["graph net"]
    for name in (*inputs, *made):
        text += [f"buffer {name} {int(np.prod(extents))}"]
        text += [f"tensor {name}: fp32[{shape}] at {name} + 0 by ({strides})"]
    text += [*(f"input {name}" for name in inputs), *(f"output {name}" for name in outputs)]
    return parse_graph("\n".join([*text, *lines]))


def steps(made: NestGraph) -> Iterator[str]:
    for step in made.steps:
        assert isinstance(step, Nest)
        yield f"{step.function}({', '.join(each.tensor for each in step.operands)})"


def numbers(of: NestGraph) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    return {n: random.uniform(0.25, 2, of.tensors[n].shape).astype(np.float32) for n in of.inputs}


def costing(form: str, cost: float) -> Arch:
    isa = Isa(limits={form: FormLimits(cost=cost)}, chains=CHAINS)
    return WIDE.model_copy(update={"isa": isa})


SILU = ("s[d0=4, d1=8] = sigmoid(a[d0, d1])", "y[d0=4, d1=8] = mul(s[d0, d1], a[d0, d1])")


def test_what_an_instruction_does_becomes_that_instruction() -> None:
    assert list(steps(FuseFunctions().apply(graph(*SILU), WIDE))) == ["silu(a)"]


def test_it_is_taken_only_where_it_is_cheaper() -> None:
    dear = costing("vector.unary.silu", 50)
    assert list(steps(FuseFunctions().apply(graph(*SILU), dear))) == ["sigmoid(a)", "mul(s, a)"]
    without = WIDE.model_copy(update={"isa": Isa(without=("vector.unary.silu",))})
    assert FuseFunctions().apply(graph(*SILU), without) == graph(*SILU)


def test_rounded_and_clipped_values_are_not_lost() -> None:
    whole = graph(*SILU)
    first, last = whole.steps
    assert isinstance(first, Nest)
    clipped = replace(whole, steps=(replace(first, low=0.5), last))
    assert FuseFunctions().apply(clipped, WIDE) == clipped
    rounded = replace(whole.tensors["s"], rounded=("fp16",))
    cast = replace(whole, tensors={**whole.tensors, "s": rounded})
    assert FuseFunctions().apply(cast, WIDE) == cast


@pytest.mark.parametrize(("name", "count"), MADE_OF_SEVERAL)
def test_what_stands_for_a_function_is_found_again(name: str, count: int) -> None:
    """Written out for a machine that lacks it, each function is whole again on one that has it."""
    family, parameters = ("unary", "binary", "ternary")[count - 1], UNARY.get(name)
    values = ("; 0.25, 1.5", "; 0.25", "")[2 - len(parameters.parameters)] if count == 1 else ""
    reads = ", ".join(f"{each}[d0, d1]" for each in "abc"[:count])
    one = graph(f"y[d0=4, d1=8] = {name}({reads}{values})")
    lacking = WIDE.model_copy(update={"isa": Isa(without=(f"vector.{family}.{name}",))})
    written_out = ExpandFunctions().apply(one, lacking)
    again = FuseFunctions().apply(written_out, costing(f"vector.{family}.{name}", 0.01))
    assert list(steps(again)) == list(steps(one))
    x = numbers(one)
    np.testing.assert_allclose(run(again, x)["y"], run(written_out, x)["y"], rtol=1e-5, atol=1e-6)


@st.composite
def networks(draw: st.DrawFn) -> NestGraph:
    """Up to six functions of inputs and of each other."""
    known, lines = ["a", "b", "c"], []
    for number in range(draw(st.integers(2, 6))):
        out = f"t{number}"
        table = draw(st.sampled_from([("sigmoid", "exp", "tanh", "relu"), ("add", "mul", "max")]))
        count = 1 if "exp" in table else 2
        reads = [f"{draw(st.sampled_from(known))}[d0, d1]" for _ in range(count)]
        lines.append(f"{out}[d0=4, d1=8] = {draw(st.sampled_from(table))}({', '.join(reads)})")
        known.append(out)
    return graph(*lines, outputs=(known[-1],))


@settings(max_examples=60)
@given(networks(), st.sampled_from([0.01, 1.0]))
def test_networks_mean_the_same(whole: NestGraph, cost: float) -> None:
    made = FuseFunctions().apply(whole, costing("vector.*", cost))
    x = numbers(whole)
    (out,) = whole.outputs
    np.testing.assert_allclose(run(made, x)[out], run(whole, x)[out], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("pattern", "term", "found"),
    [
        ("x * sigmoid(x) * y", "b * silu(a)", {"x": "a", "y": "b"}),
        ("x * y + z", "c - b * a", None),
        ("x * y + z", "2 * a + b", {"x": "a", "y": 2.0, "z": "b"}),
        ("x * sigmoid(alpha * x)", "a * sigmoid(1.5 * a)", {"x": "a", "alpha": 1.5}),
        ("x * sigmoid(alpha * x)", "a * sigmoid(b * a)", None),
        ("max(x, y) * x", "max(a, b) * c", None),
        ("x * x * x", "a ** 3", {"x": "a"}),
        ("min(max(x, 0), 6)", "max(0, min(6, a))", None),
        ("x / y", "a * reciprocal(b)", {"x": "a", "y": "b"}),
    ],
)
def test_terms_are_alike(pattern: str, term: str, found: dict[str, str] | None) -> None:
    made = match(normal(term_of(pattern)), normal(term_of(term)), "xyz")
    assert (made is None) == (found is None)
    assert found is None or {name: made[name] for name in found} == found  # type: ignore[index]
