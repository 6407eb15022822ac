"""Instruction forms: every function of the vector engine is emitted for a nest of it, and computes
what the nest means; a machine without a form gets others in its place, within its limits.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import changed, machine
from nest_reader import parse_graph
from networks import Net, check

from compiler.api import CompileOptions, compile_model, prepared
from compiler.codegen.nodes import instructions
from compiler.lowering.lower import Lower
from compiler.options import Stages
from compiler.target.bind import Bind
from compiler.target.group_depthwise import GroupDepthwise
from compiler.target.vector_functions import ExpandFunctions
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import Nest, NestGraph
from simmodel.arch.base import CHAINS
from simmodel.arch.dtype import NUMPY
from simmodel.arch.record import Arch, FormLimits, Isa, Scalar
from simmodel.execute import execute
from simmodel.isa import VectorFamily
from simmodel.isa.forms import Form, absent, elementwise_form, forms
from simmodel.isa.functions import BINARY, UNARY
from simmodel.machine.run import simulate
from simmodel.program.program import Program
from simmodel.verify import verify

EVERY = ("fp32", "fp16", "bf16", "int8", "int16", "int32")
WIDE = changed(machine(types=("fp32",), vector={"types": EVERY}), "isa", chains=CHAINS)
INTEGERS = machine(types=("int8",), vector={"types": ("int8", "uint8", "int32")})
"""Real values are the scalar unit's."""
MADE_OF_OTHERS = [name for table in (UNARY, BINARY) for name, each in table.items() if each.does]
ON_SCALAR = INTEGERS.model_copy(update={"scalar": Scalar(types=EVERY), "isa": WIDE.isa})


def lacking(*names: str, arch: Arch = WIDE) -> Arch:
    return arch.model_copy(update={"isa": Isa(without=names)})


@dataclass(frozen=True)
class Given(Lower):
    """These nests, whatever the model is."""

    graph: NestGraph | None = None

    def apply(self, model: ir.Model, real: str) -> NestGraph:
        assert self.graph is not None
        return self.graph


def compiled(graph: NestGraph, arch: Arch) -> Program:
    net = Net()
    model = prepared(net.model(net.op("Relu", net.input(1, 4))), "net")
    stages = Stages(
        lower=Given(graph=graph), depthwise=GroupDepthwise(enabled=False), bind=Bind("vector")
    )
    program = compile_model(model, arch, CompileOptions(stages=stages)).program
    verify(program, arch)
    return program


def parameters(form: Form) -> str:
    values = ("0.25", "1.5")
    count = 0 if form.function is None else len(form.function.parameters)
    return "; " * bool(count) + ", ".join(values[:count])


def one_nest(form: Form) -> NestGraph:
    """A network of one nest that is a case for `form`."""
    family, _, name = form.name.rpartition(".")
    if family.endswith(".reduce"):
        return graph_of("y", (3,), [(3, 40)], f"y[a=3] = {name} over r=40 of move(x0[a, r])")
    if family == "vector.window":
        return _sliding(name)
    count = ("unary", "binary", "ternary").index(family.partition(".")[2]) + 1
    reads = ", ".join(f"x{i}[a, b]" for i in range(count))
    value = f"{name}({reads}{parameters(form)})"
    if name == "move":
        value = f"clip({value}, 0.5, 2.0)"  # else a copy engine does it
    line = f"y[a=3, b=40] = {value}"
    bits = form.function is not None and form.function.bits
    return graph_of("y", (3, 40), [(3, 40)] * count, line, "int16" if bits else "fp32")


def _sliding(name: str) -> NestGraph:
    at = "x0[n, c, h + i, w + j]"
    what, function = (f"mul({at}, x1[c, i, j])", "sum") if name == "fma" else (f"move({at})", name)
    line = f"y[n=1, c=8, h=4, w=4] = {function} over i=3, j=3 of {what}"
    shapes = [(1, 8, 6, 6), (8, 3, 3)][: 2 if name == "fma" else 1]
    return graph_of("y", (1, 8, 4, 4), shapes, line)


def graph_of(
    out: str, shape: tuple[int, ...], inputs: list[tuple[int, ...]], line: str, kind: str = "fp32"
) -> NestGraph:
    tensors = {out: shape} | {f"x{i}": each for i, each in enumerate(inputs)}
    text = ["graph net", *(f"buffer {n} {int(np.prod(s))}" for n, s in tensors.items())]
    for name, extents in tensors.items():
        steps = [int(np.prod(extents[axis + 1 :])) for axis in range(len(extents))]
        said = ", ".join(map(str, steps)) + ("," if len(steps) == 1 else "")
        listed = ", ".join(map(str, extents))
        text.append(f"tensor {name}: {kind}[{listed}] at {name} + 0 by ({said.rstrip(',')})")
    text += [*(f"input x{i}" for i in range(len(inputs))), f"output {out}", line]
    return parse_graph("\n".join(text))


def numbers(graph: NestGraph, seed: int = 0) -> dict[str, np.ndarray]:
    """Positive inputs, in which each function has a value, some of them equal."""
    random = np.random.default_rng(seed)
    return {
        name: random.choice([0.25, 0.5, 1.0, 1.75, 2.0, 3.5], graph.tensors[name].shape).astype(
            NUMPY[graph.tensors[name].dtype]
        )
        for name in graph.inputs
    }


OF_CODES = ("unary.lookup", "reduce.blocks")
"""Of 256 codes, and into blocks: in test_vector_functions.py and test_block_activations.py."""
FUNCTIONS = [
    f for f in forms().values() if f.function is not None and not f.name.endswith(OF_CODES)
]
VECTOR = [form for form in FUNCTIONS if form.engine == "vector"]
SCALAR = [form for form in FUNCTIONS if form.engine == "scalar"]


@pytest.mark.parametrize("form", [*VECTOR, *SCALAR], ids=lambda form: form.name)
def test_a_nest_of_each_function_is_an_instruction_of_that_form(form: Form) -> None:
    arch = WIDE if form in VECTOR else ON_SCALAR
    assert absent(form, arch) is None
    graph = one_nest(form)
    program = compiled(graph, arch)
    assert form.name in {instruction.form for instruction in instructions(program.cores[0])}
    x = numbers(graph)
    np.testing.assert_allclose(execute(program, x, arch)["y"], run(graph, x)["y"], rtol=1e-6)
    assert simulate(program, arch).cycles > 0


@pytest.mark.parametrize("name", MADE_OF_OTHERS)
def test_a_machine_without_a_function_computes_it_with_others(name: str) -> None:
    form = next(f for f in VECTOR if f.name.endswith(f"ary.{name}"))
    graph, arch = one_nest(form), lacking(form.name)
    program = compiled(graph, arch)
    assert form.name not in {instruction.form for instruction in instructions(program.cores[0])}
    assert not any(instruction.engine == "host" for instruction in instructions(program.cores[0]))
    x = numbers(graph)
    np.testing.assert_allclose(
        execute(program, x, arch)["y"], run(graph, x)["y"], rtol=1e-5, atol=1e-6
    )


@settings(max_examples=60)
@given(st.data())
def test_expansions_mean_the_same_whatever_is_lacking(data: st.DataObject) -> None:
    """Any set of absent forms: either nothing stands in for the function, or present forms do, on
    numbers of both signs."""
    name = data.draw(st.sampled_from(sorted(MADE_OF_OTHERS)))
    form = next(f for f in VECTOR if f.name.endswith(f"ary.{name}"))
    kept = {"vector.unary.move", "vector.binary.add", "vector.binary.mul"}
    others = sorted({f.name for f in VECTOR if "ary." in f.name} - kept - {form.name})
    arch = lacking(form.name, *data.draw(st.sets(st.sampled_from(others))))
    graph = one_nest(form)
    made = ExpandFunctions().apply(graph, arch)
    used = {
        elementwise_form(step.function, len(step.operands))
        for step in made.steps
        if isinstance(step, Nest)
    }
    assert made == graph or not any(fnmatch.filter(used, each) for each in arch.isa.without)
    x = numbers(graph, seed=1)
    if name not in ("sqrt", "rsqrt", "reciprocal", "div", "log"):
        signs = np.array([1, -1], np.float32)
        x = {n: values * np.resize(signs, values.shape) for n, values in x.items()}
    np.testing.assert_allclose(run(made, x)["y"], run(graph, x)["y"], rtol=3e-6, atol=1e-6)


def test_a_function_without_any_other_goes_to_the_host() -> None:
    net = Net()
    y = net.op("Erf", net.input(1, 16))
    result = compile_model(prepared(net.model(y), "net"), lacking("vector.unary.erf"))
    (call,) = result.host
    assert call.kind == "Erf"
    assert call.reason == "m has no vector.unary.erf"


def test_limits_of_a_form_and_its_cost_by_hand() -> None:
    """16 lanes: a special function takes 8 cycles a vector on this engine, or 2 where the form has
    a cost of its own; of rows of 32 at most there are more."""
    arch = machine(types=("fp32",), vector={"lanes": 16, "cost": {"special": 8}})
    graph = graph_of("y", (100,), [(100,)], "y[a=100] = exp(x0[a])")

    def exps(arch: Arch) -> list[VectorFamily]:
        found = (
            i for i in instructions(compiled(graph, arch).cores[0]) if isinstance(i, VectorFamily)
        )
        return [i for i in found if i.form == "vector.unary.exp"]

    whole = exps(arch)[0]
    vectors = -(-whole.dst.elements // 16)
    assert whole.cycles(arch) == vectors * 8
    own = arch.model_copy(update={"isa": Isa(limits={"vector.*.exp": FormLimits(cost=2.0)})})
    assert whole.cycles(own) == vectors * 2
    narrow = FormLimits(rank=1, max_extent=32)
    short = arch.model_copy(update={"isa": Isa(limits={"vector.unary.*": narrow})})
    assert short.reach("vector.unary.exp") == (1, 32)
    assert short.reach("vector.binary.add") == (3, None)
    assert whole.unencodable(short) == f"extent {whole.dst.elements}, at most 32"
    assert {i.unencodable(short) for i in exps(short)} == {None}
    assert max(i.dst.elements for i in exps(short)) <= 32


def test_the_scalar_unit_comes_before_the_host_where_it_is_quicker() -> None:
    """A softmax of few elements takes some hundred cycles there, the host 10 us for the call alone;
    of many elements the host is done first."""
    for rows, expected in ((2, []), (4096, ["QuantizeLinear", "ReduceMax", "Sub", "Exp"])):
        net = Net(quantized=True)
        model = net.model(net.op("Softmax", net.input(rows, 16)))
        result = compile_model(prepared(model, "net"), ON_SCALAR)
        assert [call.kind for call in result.host][:4] == expected
    assert compile_model(prepared(model, "net"), INTEGERS).host


@pytest.mark.parametrize("kind", ["Softmax", "Exp", "HardSwish", "Sqrt", "Tanh"])
def test_what_the_scalar_unit_computes_agrees_with_the_reference(kind: str) -> None:
    net = Net(quantized=True)
    y = net.op(kind, net.op("Relu", net.input(3, 10)))
    assert not check(net.model(y), ON_SCALAR, "int8").compiled.host
