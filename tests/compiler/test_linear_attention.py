"""Attention by a state: the same numbers as its definition, token by token and as a program."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from evaluate import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from one_node import executed
from onnx import helper
from onnx.reference import ReferenceEvaluator

from archgen.check.reference import run_node
from compiler.api import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend.importer import Load, load
from compiler.frontend.operators.attention import RULES
from compiler.lowering.lower import lower
from compiler.options import Stages, stages_for
from compiler.schedule.fusion.partition import Unfused
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import HostNode

Feeds = dict[str, Any]


def network(
    rule: str, *, heads: int = 2, group: int = 2, steps: int = 3, keys: int = 4, past: bool = True,
    apart: bool = False, kind: type = np.float32, inputs: tuple[str, ...] | None = None,
) -> tuple[onnx.ModelProto, Feeds]:  # fmt: skip
    """One node, and arrays for it. `apart`: each key dimension decays at a rate of its own."""
    batch, values = 2, 3
    random = np.random.default_rng(3)
    shapes = {
        "q": (batch, steps, heads * group * keys),
        "k": (batch, steps, heads * keys),
        "v": (batch, steps, heads * values),
        "past": (batch, heads, keys, values),
        "decay": (batch, steps, heads * keys if apart else heads),
        "beta": (batch, steps, 1 if apart else heads),
    }
    asked = RULES[rule] if inputs is None else inputs
    used = ["q", "k", "v", *(["past"] if past else []), *asked]
    feeds = {name: random.normal(size=shapes[name]).astype(kind) / 2 for name in used}
    if "decay" in feeds:
        feeds["decay"] = -np.abs(feeds["decay"])
    names = [n if n in used else "" for n in ("q", "k", "v", "past", "decay", "beta")]
    node = helper.make_node(
        "LinearAttention", names, ["y", "state"], "node", update_rule=rule,
        q_num_heads=heads * group, kv_num_heads=heads,
    )  # fmt: skip
    elements = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        [node], "net",
        [helper.make_tensor_value_info(n, elements, shapes[n]) for n in used],
        [helper.make_tensor_value_info("y", elements, (batch, steps, heads * group * values)),
         helper.make_tensor_value_info("state", elements, shapes["past"])],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 27)]
    return helper.make_model(graph, opset_imports=opset, ir_version=12), feeds


def agree(made: Feeds, proto: onnx.ModelProto, feeds: Feeds) -> None:
    wanted = ReferenceEvaluator(proto).run(None, feeds)
    for name, values in zip(("y", "state"), wanted, strict=True):
        assert made[name].dtype == values.dtype
        roundings = 2e-3 if values.dtype == np.float16 else 2e-6
        np.testing.assert_allclose(made[name], values, rtol=roundings, atol=roundings)


@given(
    st.sampled_from(sorted(RULES)), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4),
    st.integers(1, 5), st.booleans(), st.booleans(), st.sampled_from([np.float32, np.float16]),
)  # fmt: skip
@settings(max_examples=25)
def test_graph_and_nests_compute_what_onnx_defines(
    rule: str, heads: int, group: int, steps: int, keys: int, past: bool, apart: bool, kind: type
) -> None:
    proto, feeds = network(
        rule, heads=heads, group=group, steps=steps, keys=keys, past=past, apart=apart, kind=kind
    )
    model = load(proto, "net")
    agree(evaluate(model, feeds), proto, feeds)
    made = run(lower(model, "fp32"), feeds, run_node)
    agree({n: v.astype(kind) for n, v in made.items()}, proto, feeds)


def test_programs_compute_it_without_the_host() -> None:
    proto, feeds = network("gated_delta")
    arch = machine(local={"size": "1 MiB"})
    options = CompileOptions("fp32", stages=stages_for(0, Stages(partition=Unfused())))
    made, outputs = executed(proto, feeds, arch, options)
    assert not made.host
    agree(outputs, proto, feeds)


def test_more_tokens_than_may_unfold_are_the_hosts() -> None:
    proto, _ = network("delta")
    (host,) = lower(load(proto, "net", Load(unroll=2)), "fp32").steps
    assert isinstance(host, HostNode)
    assert host.reason.startswith("its 3 steps have ")


def test_a_rule_without_its_inputs_is_told_which() -> None:
    proto, _ = network("gated", inputs=("beta",))
    with pytest.raises(UnsupportedModel, match="'gated' takes decay, the node has beta"):
        load(proto, "net")
