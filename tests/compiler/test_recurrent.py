"""Recurrent networks, and attention by a state, as scans: the same numbers as ONNX Runtime's or
ONNX's own, whatever their options.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import one_node
import onnx
import pytest
from evaluate import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from networks import feeds_of, model
from one_node import executed
from onnx import helper
from onnx.reference import ReferenceEvaluator

from archgen.check.reference import run_node, run_reference
from compiler.api import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend.importer import Load, load
from compiler.lowering.lower import lower
from compiler.options import Stages, stages_for
from compiler.schedule.fusion.partition import Unfused
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import HostNode

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
ACTIVATIONS = ("Tanh", "Sigmoid", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
               "HardSigmoid", "Elu", "Softsign", "Softplus")  # fmt: skip
STEPS, BATCH, SIZE, HIDDEN = 4, 3, 5, 6
NOTHING_MORE = dict.fromkeys(["b", "lengths", "h", "c", "p"], False)


@st.composite
def recurrent(draw: st.DrawFn) -> onnx.ModelProto:
    """A network of one recurrent node, with any of its options."""
    kind = draw(st.sampled_from(sorted(GATES)))
    attributes: dict[str, Any] = {"hidden_size": HIDDEN}
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    count = 2 if direction == "bidirectional" else 1
    attributes["direction"] = direction
    if draw(st.booleans()):
        names = st.sampled_from(ACTIVATIONS)
        chosen = draw(st.lists(names, min_size=count * FUNCTIONS[kind],
                               max_size=count * FUNCTIONS[kind]))  # fmt: skip
        attributes["activations"] = chosen
        attributes["activation_alpha"] = [0.3] * len(chosen)
        attributes["activation_beta"] = [0.2] * len(chosen)
    if draw(st.booleans()):
        attributes["clip"] = 0.4
    if kind == "GRU":
        attributes["linear_before_reset"] = draw(st.integers(0, 1))
    if kind == "LSTM":
        attributes["input_forget"] = draw(st.integers(0, 1))
    given = {name: draw(st.booleans()) for name in ("b", "lengths", "h", "c", "p")}
    return network(kind, count, attributes, given, computed=draw(st.booleans()))


def network(
    kind: str, count: int, attributes: dict[str, Any], given: dict[str, bool], *, computed: bool
) -> onnx.ModelProto:
    """One node; its weights are inputs of the network where `computed`, else constants."""
    random = np.random.default_rng(0)
    rows = GATES[kind] * HIDDEN
    shapes = {"w": (count, rows, SIZE), "r": (count, rows, HIDDEN), "b": (count, 2 * rows),
              "h": (count, BATCH, HIDDEN), "c": (count, BATCH, HIDDEN),
              "p": (count, 3 * HIDDEN)}  # fmt: skip
    arrays = {n: random.normal(size=s).astype(np.float32) / 2 for n, s in shapes.items()}
    arrays["lengths"] = np.array([STEPS, 2, 1], np.int32)
    order = ["w", "r", "b", "lengths", "h", "c", "p"][: 7 if kind == "LSTM" else 5]
    names = [name if given.get(name, True) else "" for name in order]
    outputs = ["y", "last", "cell"][: 3 if kind == "LSTM" else 2]
    ports = {"x": (STEPS, BATCH, SIZE), **({n: shapes[n] for n in "wr"} if computed else {})}
    node = helper.make_node(kind, ["x", *names], outputs, name="cell", **attributes)
    constants = {n: arrays[n] for n in names if n and n not in ports}
    return model([node], ports, dict.fromkeys(outputs), constants, opset=21)


def agree(made: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, values in wanted.items():
        assert made[name].shape == values.shape
        # ONNX Runtime's Softplus overflows where the sum is large, and spoils what is beside it.
        finite = np.broadcast_to(np.isfinite(values).all(-1, keepdims=True), values.shape)
        # Activations without an upper end grow from step to step, and then cancel.
        near = max(2e-5, 2e-6 * np.abs(values[finite]).max(initial=0.0))
        assert np.allclose(made[name][finite], values[finite], atol=near, rtol=1e-4), name


@settings(max_examples=60)
@given(recurrent())
def test_graph_and_nests_compute_what_onnx_runtime_does(proto: onnx.ModelProto) -> None:
    feeds = feeds_of(proto)
    wanted = run_reference(proto, feeds)
    model = load(proto, "net")
    assert not {node.op_type for node in model.graph} & set(GATES)
    agree(evaluate(model, feeds), wanted)
    agree(run(lower(model, "fp32"), feeds, run_node), wanted)


@pytest.mark.parametrize("kind", sorted(GATES))
def test_programs_compute_what_onnx_runtime_does_without_the_host(kind: str) -> None:
    """Both directions of sequences of several lengths, with every input."""
    attributes = {"hidden_size": HIDDEN, "direction": "bidirectional"}
    proto = network(kind, 2, attributes, {}, computed=False)
    arch = machine(local={"size": "1 MiB"})
    options = CompileOptions("fp32", stages=stages_for(0, Stages(partition=Unfused())))
    feeds = feeds_of(proto)
    made, outputs = executed(proto, feeds, arch, options)
    assert not made.host
    agree(outputs, run_reference(proto, feeds))


def test_more_steps_than_may_unfold_are_left_to_the_host_with_the_reason() -> None:
    proto = network("LSTM", 1, {"hidden_size": HIDDEN}, NOTHING_MORE, computed=False)
    model = load(proto, "net", Load(unroll=50))
    (host,) = lower(model, "fp32").steps
    assert isinstance(host, HostNode)
    assert host.reason == (
        "its 4 steps have 51 operators, those of a network unfold into at most 50 (load: unroll)"
    )
    feeds = feeds_of(proto)
    agree(run(lower(model, "fp32"), feeds, run_node), run_reference(proto, feeds))


def test_scans_of_a_network_share_what_may_unfold() -> None:
    """Two directions of 51 operators each: with 101 in all neither is begun in part."""
    attributes = {"hidden_size": HIDDEN, "direction": "bidirectional"}
    proto = network("LSTM", 2, attributes, NOTHING_MORE, computed=False)
    model = load(proto, "net", Load(unroll=101))
    (host,) = lower(model, "fp32").steps
    assert isinstance(host, HostNode)
    assert "at most 101, of which 50 are left" in host.reason
    steps = lower(load(proto, "net", Load(unroll=102)), "fp32").steps
    assert not any(isinstance(step, HostNode) for step in steps)


@pytest.mark.parametrize("kind", sorted(GATES))
@pytest.mark.parametrize("other", sorted(GATES))
def test_inputs_of_another_operator_are_refused_in_words(kind: str, other: str) -> None:
    """As where a byte of the operator's name is damaged."""
    given = {"lengths": False, "h": False, "c": False, "p": False}
    proto = network(kind, 1, {"hidden_size": HIDDEN}, given, computed=False)
    (node,) = proto.graph.node
    del node.input[4:], node.output[1:], proto.graph.output[1:]
    node.op_type = other
    if other == kind:
        load(proto, "net")
        return
    rows, wanted = GATES[kind] * HIDDEN, GATES[other] * HIDDEN
    with pytest.raises(UnsupportedModel) as caught:
        load(proto, "net")
    assert str(caught.value) == (
        f"net: node 'cell' (ai.onnx.{other}): w is [1, {rows}, {SIZE}], expected "
        f"[1, {wanted}, {SIZE}]; r is [1, {rows}, {HIDDEN}], expected [1, {wanted}, {HIDDEN}]; "
        f"bias is [1, {2 * rows}], expected [1, {2 * wanted}]"
    )


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        (
            {"direction": "bidirectional", "activations": ["Sigmoid", "Tanh", "Tanh"]},
            "there are 3 activations, expected 6",
        ),
        ({"activations": ["Tahn"] * 6}, "activation 'Tahn' is unknown; there are "),
        ({"direction": "onward"}, "direction 'onward', expected one of forward, reverse, bidi"),
        ({"hidden_size": HIDDEN + 1}, f"hidden_size is {HIDDEN + 1}, r has {HIDDEN}"),
    ],
)
def test_attributes_that_do_not_suit_are_refused_in_words(
    attributes: dict[str, Any], said: str
) -> None:
    count = 1 + (attributes.get("direction") == "bidirectional")
    proto = network("LSTM", count, attributes, {}, computed=False)
    with pytest.raises(UnsupportedModel) as caught:
        load(proto, "net")
    assert str(caught.value).startswith(f"net: node 'cell' (ai.onnx.LSTM): {said}")


def test_inputs_of_too_few_dimensions_are_refused_in_words() -> None:
    proto = network("GRU", 1, {}, {}, computed=False)
    for tensor in proto.graph.initializer:
        if tensor.name == "w":
            tensor.dims[:] = [tensor.dims[1], tensor.dims[2]]
    with pytest.raises(UnsupportedModel, match="x, w and r have 3 dimensions each; w has 2"):
        load(proto, "net")


SHAPES = {"q": (2, 3, 16), "k": (2, 3, 8), "v": (2, 3, 6), "past": (2, 2, 4, 3), "decay": (2, 3, 2),
          "beta": (2, 3, 2)}  # fmt: skip


def attention(rule: str, *inputs: str) -> onnx.ModelProto:
    """Two heads of keys for four of queries, three tokens."""
    used = ["q", "k", "v", "past", *inputs]
    ports = ", ".join(f"float{[*SHAPES[name]]} {name}" for name in used)
    names = ", ".join(name if name in used else "" for name in SHAPES)
    return onnx.parser.parse_model(
        f"""<ir_version: 12, opset_import: ["" : 27]>
        g ({ports}) => (float[2,3,12] y, float[2,2,4,3] state) {{
          y, state = LinearAttention <update_rule = "{rule}", q_num_heads = 4, kv_num_heads = 2>
            ({names.rstrip(", ")}) }}"""
    )


def test_programs_compute_it_without_the_host() -> None:
    proto, random = attention("gated_delta", "decay", "beta"), np.random.default_rng(3)
    feeds = {n: random.normal(size=shape).astype(np.float32) / 2 for n, shape in SHAPES.items()}
    feeds["decay"] = -np.abs(feeds["decay"])
    arch = machine(local={"size": "1 MiB"})
    options = CompileOptions("fp32", stages=stages_for(0, Stages(partition=Unfused())))
    made, outputs = executed(proto, feeds, arch, options)
    assert not made.host
    one_node.agree(outputs, ReferenceEvaluator(proto).run(None, feeds), 2e-6, 2e-6)


def test_more_tokens_than_may_unfold_are_the_hosts() -> None:
    graph = lower(load(attention("delta", "beta"), "net", Load(unroll=2)), "fp32")
    (host,) = (step for step in graph.steps if isinstance(step, HostNode))
    assert host.reason.startswith("its 3 steps have ")


def test_a_rule_without_its_inputs_is_told_which() -> None:
    with pytest.raises(UnsupportedModel, match="input 'decay' is missing"):
        load(attention("gated", "beta"), "net")
