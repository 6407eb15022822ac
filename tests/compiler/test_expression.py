"""Tensor expressions: the text, its nests, its program and its form for the host agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from one_node import executed

from archgen.check.reference import run_node
from compiler.api import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend.importer import load
from compiler.frontend.operators.expression import evaluate, expression
from compiler.frontend.operators.functions import DEFINED
from compiler.frontend.operators.functions import expression as registered
from compiler.lowering.lower import host_node, lower
from compiler.lowering.node import LoweringLimits
from compiler.options import stages_for
from compiler.tensor_ir.build import NestGraphBuilder
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import HostNode, Nest

HEAD = '<ir_version: 10, opset_import: ["" : 21, "my" : 1]>'
SHAPES = {"x": (3, 10), "w": (4, 5), "v": (10,)}


@pytest.fixture(autouse=True)
def none_stays() -> Iterator[None]:
    """What a test registers is gone behind it."""
    before = dict(DEFINED)
    yield
    DEFINED.clear()
    DEFINED.update(before)


@pytest.mark.parametrize(
    ("text", "templates", "shape"),
    [
        ("y[b, o, i] = sum(k, x[b, i + k] * w[o, k])", "contraction window reduction", (3, 4, 6)),
        ("y[b, i:5] = max(k[3], pad(x[b, 2 * i + k - 1], -9))", "window reduction", (3, 5)),
        ("y[b] = mean(i, x[b, i])", "reduction", (3,)),
        ("y[i, b] = x[b, i]", "movement", (10, 3)),
        ("y[b, i:6, j:7] = x[b, i] + v[j]", "elementwise", (3, 6, 7)),
        ("y[b, i:9] = sum(k[2], x[b, i + k]) + v[i]", "window reduction elementwise", (3, 9)),
        ("y[b, i] = x[b, i] / sum(k, abs(x[b, k]))", "reduction elementwise", (3, 10)),
        ("y[b, i:9] = x[b, i + 1] - x[b, i]", "window elementwise", (3, 9)),
        ("y[b, c] = sum(i, x[b, i] * x[c, i])", "contraction reduction", (3, 3)),
    ],
)
def test_extents_and_templates_follow(text: str, templates: str, shape: tuple[int, ...]) -> None:
    made = expression(text, SHAPES)
    assert (made.templates, made.shape) == (tuple(templates.split()), shape)


def test_numpy_says_the_same() -> None:
    x, w = (np.random.default_rng(0).normal(size=SHAPES[n]).astype(np.float32) for n in "xw")
    window = np.lib.stride_tricks.sliding_window_view(x, 5, axis=1)
    made = evaluate(expression("y[b, o, i] = sum(k, x[b, i + k] * w[o, k])", SHAPES),
                    {"x": x, "w": w})  # fmt: skip
    assert np.allclose(made, np.einsum("bik,ok->boi", window, w), atol=1e-5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("y[i] = ", "is no expression"),
        ("y = x[i, j]", r"write y\[i, j\] = ..."),
        ("y[i] = x[i]", "x has 2 dimensions, 1 positions are given"),
        ("y[i] = z[i]", "'z' is no input; there are x, w, v"),
        ("y[i, j] = x[i, j + 1] + x[i, j]", "x is read at 1 to 10 along axis 1, which has 10; pad"),
        ("y[i, j, k] = x[i, j]", "the extent of 'k' does not follow; write k:8"),
        ("y[i] = x[i, j]", "index 'j' is neither of the result nor reduced over"),
        ("y[col, j] = x[c0l, j]", "extent of 'col' does not follow; did you mean 'c0l'"),
        ("y[row:5, j] = x[rwo, j]", "index 'rwo' is neither .* did you mean 'row'"),
        ("y[i] = v[i] + w[0, i]", "index 'i' goes along 10 and along 5 elements; write i:5"),
        ("y[i] = sum(k, v[i])", "sum over 'k', on which nothing in it depends"),
        ("y[i] = frob(v[i])", "the vector engine has no function 'frob' of 1 values"),
        ("y[i] = v[i * i]", "no whole number, nor a sum of indices"),
        ("y[i] = v[i] if 1 else v[i]", "is no value of a tensor expression"),
        ("y[2] = v[2]", "'2' is no index"),
    ],
)
def test_what_is_wrong_with_a_text_is_said_in_words(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        expression(text, SHAPES)


def expressed_model(template: str, gives: object) -> onnx.ModelProto:
    """y = my.Own(x), whose function gives `gives`."""
    registered("my", "Own", template=template)(lambda x: gives)
    return onnx.parser.parse_model(f"{HEAD} own (float[3, 10] x) => (y) {{ y = my.Own (x) }}")


WINDOW = "y[b, i:10] = sum(k[3], pad(x[b, i + k - 1], 0)) + 1"


@pytest.mark.parametrize("template", ["window", "elementwise"])
def test_a_template_is_one_of_those_of_the_parts(template: str) -> None:
    assert load(expressed_model(template, WINDOW), "own").graph.outputs


EINSUMS = {
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "ij,kj": ((3, 4), (5, 4)),
    "i,j,k->kij": ((2,), (3,), (4,)),
    "abc->cb": ((2, 3, 4),),
    "ij,jk->ik": ((3, 1), (4, 5)),
    "ii->i": ((4, 4),),
    "...i,i->...": ((2, 3, 4), (4,)),
}


@pytest.mark.parametrize("equation", EINSUMS)
def test_einsum_is_an_expression_or_is_left_to_the_host(equation: str) -> None:
    shapes = EINSUMS[equation]
    random = np.random.default_rng(0)
    feeds = {f"t{n}": random.normal(size=s).astype(np.float32) for n, s in enumerate(shapes)}
    ports = ", ".join(f"float{[*values.shape]} {name}" for name, values in feeds.items())
    node = f'y = Einsum <equation = "{equation}"> ({", ".join(feeds)})'
    proto = onnx.parser.parse_model(f"{HEAD} net ({ports}) => (y) {{ {node} }}")
    lowered = lower(load(proto, "net"), "fp32")
    made = run(lowered, feeds, run_node)["y"]
    assert np.allclose(made, np.einsum(equation, *feeds.values()), atol=1e-5)
    host = [step.reason for step in lowered.steps if isinstance(step, HostNode)]
    left = {"ij,jk->ik": "it repeats an extent of 1", "ii->i": "its equation takes a diagonal",
            "...i,i->...": "its equation has an ellipsis"}  # fmt: skip
    assert host == ([left[equation]] if equation in left else [])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Expressions over `SHAPES` of every template."""
    step, tap, taps = (draw(st.integers(1, n)) for n in (2, 2, 4))
    shift = draw(st.integers(-2, 2))
    reach = (10 - 1 - (taps - 1) * tap - max(shift, 0)) // step + 1
    position = f"{step} * i + {tap} * k + {shift}"
    read = f"pad(x[b, {position}], {draw(st.sampled_from(['0', '-2.5']))})"
    function = draw(st.sampled_from(["tanh", "abs", "relu", "square"]))
    how = draw(st.sampled_from(["sum", "max", "min", "mean"]))
    return draw(
        st.sampled_from([
            f"y[b, o, i:{reach}] = sum(k[{taps}], {read} * w[o, k])",
            f"y[b, i:{reach}] = {how}(k[{taps}], {read})",
            f"y[b, i:{reach}] = {how}(k[{taps}], {function}({read}) - 0.5)",
            f"y[b, i:{reach}, k:{taps}] = {read}",
            "y[b, i] = pow(abs(x[b, i]), 1.5) * rsqrt(1 + square(v[i]))",
            f"y[i, b] = {function}(x[b, i] * v[i]) / (1 + exp(-v[i]))",
            "y[b, i] = exp(x[b, i]) / sum(j, exp(x[b, j]))",
            f"y[o, b] = {function}(sum(k[5], w[o, k] * x[b, {step} * k]))",
            "y[b, i] = max(x[b, i], v[i]) - min(x[b, 3], 0.25)",
        ])
    )  # fmt: skip


def network(text: str) -> onnx.ModelProto:
    @registered("my", "Own", replace=True)
    def own(x: Any, w: Any, v: Any) -> str:
        return text

    ports = ", ".join(f"float{[*shape]} {name}" for name, shape in SHAPES.items())
    return onnx.parser.parse_model(f"{HEAD} net ({ports}) => (y) {{ y = my.Own (x, w, v) }}")


FEEDS = {n: np.random.default_rng(len(n)).normal(size=s).astype(np.float32)
         for n, s in SHAPES.items()}  # fmt: skip


@settings(max_examples=60)
@given(texts())
def test_nests_and_the_host_compute_the_expression(text: str) -> None:
    wanted = evaluate(expression(text, SHAPES), FEEDS)
    model = load(network(text), "net")
    graph = lower(model, "fp32")
    assert all(isinstance(step, Nest) for step in graph.steps)
    assert np.allclose(run(graph, FEEDS)["y"], wanted, atol=1e-5, rtol=1e-5)
    host: HostNode = host_node(
        model.graph.node(0), NestGraphBuilder("net", "fp32"), model, "asked", LoweringLimits()
    )
    (made,) = run_node(host.payload, [FEEDS[name] for name in host.inputs])
    assert np.allclose(made, wanted, atol=1e-5, rtol=1e-5)


def test_a_function_that_onnx_lacks_is_refused_for_the_host_by_its_name() -> None:
    model = load(network("y[b, i] = trunc(x[b, i])"), "net")
    with pytest.raises(UnsupportedModel, match=r"node '.*' \(my.Own\): .* no operator trunc"):
        host_node(
            model.graph.node(0), NestGraphBuilder("net", "fp32"), model, "asked", LoweringLimits()
        )


@given(texts())
@settings(max_examples=15)
def test_programs_compute_the_expression(text: str) -> None:
    arch = machine(local={"size": "1 MiB"})
    options = CompileOptions("fp32", stages=stages_for(0))
    _, outputs = executed(network(text), FEEDS, arch, options)
    wanted = evaluate(expression(text, SHAPES), FEEDS)
    assert np.allclose(outputs["y"], wanted, atol=1e-5, rtol=1e-5)
