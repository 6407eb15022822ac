"""Attention by a state, which ONNX defines by a scan: as a program; and what has no meaning."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from machines import machine
from one_node import executed
from onnx.reference import ReferenceEvaluator

from compiler.api import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend.importer import Load, load
from compiler.lowering.lower import lower
from compiler.options import Stages, stages_for
from compiler.schedule.fusion.partition import Unfused
from compiler.tensor_ir.nest import HostNode

SHAPES = {"q": (2, 3, 16), "k": (2, 3, 8), "v": (2, 3, 6), "past": (2, 2, 4, 3), "decay": (2, 3, 2),
          "beta": (2, 3, 2)}  # fmt: skip


def network(rule: str, *inputs: str) -> onnx.ModelProto:
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
    proto, random = network("gated_delta", "decay", "beta"), np.random.default_rng(3)
    feeds = {n: random.normal(size=shape).astype(np.float32) / 2 for n, shape in SHAPES.items()}
    feeds["decay"] = -np.abs(feeds["decay"])
    arch = machine(local={"size": "1 MiB"})
    options = CompileOptions("fp32", stages=stages_for(0, Stages(partition=Unfused())))
    made, outputs = executed(proto, feeds, arch, options)
    assert not made.host
    for name, wanted in zip(
        ("y", "state"), ReferenceEvaluator(proto).run(None, feeds), strict=True
    ):
        np.testing.assert_allclose(outputs[name], wanted, rtol=2e-6, atol=2e-6)


def test_more_tokens_than_may_unfold_are_the_hosts() -> None:
    graph = lower(load(network("delta", "beta"), "net", Load(unroll=2)), "fp32")
    (host,) = (step for step in graph.steps if isinstance(step, HostNode))
    assert host.reason.startswith("its 3 steps have ")


def test_a_rule_without_its_inputs_is_told_which() -> None:
    with pytest.raises(UnsupportedModel, match="input 'decay' is missing"):
        load(network("gated", "beta"), "net")
