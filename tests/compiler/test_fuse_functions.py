"""Functions of functions that one instruction does: found again whatever order they stand in,
taken where cheaper, and left alone where anybody sees what is between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from nest_reader import parse_graph

from compiler.target.fuse_functions import FuseFunctions
from compiler.target.vector_functions import ExpandFunctions, match, normal
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import Nest, NestGraph
from simmodel.arch.base import CHAINS
from simmodel.arch.record import Arch, FormLimits, Isa, VectorCost
from simmodel.isa.functions import BINARY, TERNARY, UNARY, functions_in, term_of

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
