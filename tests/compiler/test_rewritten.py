"""Operators of ONNX that a Python function says in simpler ones, against ONNX's own meaning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from networks import cleaned
from one_node import agree

from archgen.check.reference import run_node, run_reference
from compiler.frontend.importer import load
from compiler.lowering.lower import lower
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import Array, HostNode


def computed(text: str, feeds: dict[str, Array]) -> dict[str, Array]:
    """What the nests of a network compute, none of them the host's."""
    graph = lower(cleaned(load(onnx.parser.parse_model(text), "g")), "fp32")
    # Rows that could be copied by a list are compared with it.
    ways = [step.otherwise if isinstance(step, HostNode) else (step,) for step in graph.steps]
    assert all(ways), graph.steps
    graph = replace(graph, steps=tuple(nest for way in ways for nest in way))
    return run(graph, feeds, run_node)


def agrees(text: str, feeds: dict[str, Array], atol: float = 1e-5) -> None:
    """With ONNX Runtime, or ONNX's evaluator where that has no kernel."""
    wanted = run_reference(onnx.parser.parse_model(text), feeds)
    agree(computed(text, feeds), [*wanted.values()], 1e-4, atol)


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_bits_of_whole_numbers_are_kept() -> None:
    text = """<ir_version: 12, opset_import: ["" : 26]>
      g (int8[3] x) => (uint8[3] y) { y = BitCast <to = 2> (x) }"""
    (y,) = computed(text, {"x": np.array([-1, -128, 5], np.int8)}).values()
    assert y.tolist() == [255, 128, 5]


def test_a_sum_over_no_axes_is_what_it_reads() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
      g (float[2,3] x) => (float[2,3] y) <int64[0] axes = {}> {
        y = ReduceSum <noop_with_empty_axes = 1> (x, axes) }"""
    agrees(text, {"x": normal(6, 2, 3)})


FLEX = """<ir_version: 12, opset_import: ["" : 24, "ai.onnx.preview" : 1]>
  g (float[1,4,3,8] q, float[1,2,5,8] k, float[1,2,5,6] v) => (float[1,4,3,6] y) {
    y = ai.onnx.preview.FlexAttention <scale = 0.5, score_mod = m (float[1,4,3,5] s)
        => (float[1,4,3,5] t) <float half = {0.5}> { t = Mul (s, half) }> (q, k, v) }"""


def test_attention_with_a_score_of_the_models_own() -> None:
    shapes = {"q": (1, 4, 3, 8), "k": (1, 2, 5, 8), "v": (1, 2, 5, 6)}
    agrees(FLEX, {name: normal(7, *shape) for name, shape in shapes.items()})


OF_RUNTIME = {
    "sums with their normalization": """g (float[2,3,4] x, float[2,3,4] r, float[4] g, float[4] b)
      => (float[2,3,4] y, float[2,3,4] t, float[2,3,4] z) {
      y, n, d, t = com.microsoft.SkipLayerNormalization (x, r, g, b, g)
      z = com.microsoft.SkipSimplifiedLayerNormalization (x, r, g) }""",
    "embeddings": """g (float[6,4] w, float[4,4] p, float[4] g, float[4] b)
      => (float[1,3,4] y, int32[1] m) <int32[1,3] i = {5,0,2}, int32[1,3] k = {1,1,0}> {
      y, m = com.microsoft.EmbedLayerNormalization (i, , w, p, , g, b, k) }""",
    "transposed products": """g (float[2,3,4] x, float[5,4] w) => (float[2,3,5] y) {
      p = com.microsoft.FusedMatMul <alpha = 0.5, transB = 1> (x, w)
      y = com.microsoft.QuickGelu (p) }""",
    "codes": """g (uint8[1,4,4,2] x, uint8[2] y) => (uint8[1,2,2,2] a, uint8[1,4,4,4] c,
        uint8[1,4,4,2] f)
      <float s = {0.5}, uint8 z = {7}, float t = {0.25}, uint8 u = {1}, float n = {0.00390625},
       uint8 o = {0}> {
      m = com.microsoft.QLinearMul (x, s, z, y, t, u, s, z)
      l = com.microsoft.QLinearLeakyRelu <alpha = 0.2> (m, s, z, t, u)
      a = com.microsoft.QLinearAveragePool <kernel_shape = [1,1], strides = [2,2],
        channels_last = 1> (l, t, u, s, z)
      c = com.microsoft.QLinearConcat <axis = 3> (s, z, x, s, z, l, t, u)
      f = com.microsoft.QLinearSoftmax <axis = 2, opset = 12> (x, s, z, n, o) }""",
    "products of codes": """g (uint8[2,2] x) => (uint8[2,3] y, float[2,3] f)
      <float s = {0.5}, uint8 z = {7}, uint8[3,2] w = {1,2,3,4,5,6}, float[3] t = {0.25,0.5,1},
       uint8[3] u = {2,2,2}, int32[3] b = {9,-8,7}> {
      y = com.microsoft.QGemm <transB = 1> (x, s, z, w, t, u, b, s, z)
      f = com.microsoft.QGemm <transB = 1, alpha = 2.0> (x, s, z, w, t, u) }""",
    "products of codes as real numbers": """g (uint8[2,2] x, float[2,2] r)
      => (float[2,3] y, float[2,3] f)
      <float s = {0.5}, uint8 z = {7}, int8[2,3] w = {1,2,-3,4,5,6}, float[3] t = {0.25,0.5,1},
       int8[3] u = {2,2,2}, float[3] b = {9,-8,7}> {
      y = com.microsoft.MatMulIntegerToFloat (x, w, s, t, z, u, b)
      f = com.microsoft.DynamicQuantizeMatMul (r, w, t, u) }""",
}


@pytest.mark.parametrize("name", OF_RUNTIME)
def test_operators_that_onnx_runtime_fused(name: str) -> None:
    header = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>\n'
    proto = onnx.parser.parse_model(header + OF_RUNTIME[name])
    feeds = {}
    for at, port in enumerate(proto.graph.input):
        shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
        numbers = normal(at, *shape)
        codes = port.type.tensor_type.elem_type == onnx.TensorProto.UINT8
        feeds[port.name] = (numbers * 30 + 99).astype("u1") if codes else numbers
    agrees(header + OF_RUNTIME[name], feeds)


def test_what_an_expansion_does_not_make_is_the_hosts() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
      g (float[2,4] x, float[4] g) => (float[2,4] y, float[2,1] m) {
      y, m = com.microsoft.SkipLayerNormalization (x, x, g) }"""
    (step,) = lower(load(onnx.parser.parse_model(text), "g"), "fp32").steps
    assert isinstance(step, HostNode) and step.reason == "its output m is read"


FUSED = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
  g (float[1,4,5,6] x, float[1,6,5,6] z) => (float[1,6,5,6] y)
    <float[6,2,3,3] w = {{{weights}}}, float[6] b = {{1, -2, 0, 0.5, 3, -1}}> {{
    y = com.microsoft.FusedConv <group = 2, pads = [1, 1, 1, 1]{said}> (x, w, b{added}) }}"""


@pytest.mark.parametrize(
    ("said", "added"),
    [
        ("", ", z"),
        (', activation = "Relu"', ", z"),
        (', activation = "Sigmoid"', ""),
        (', activation = "LeakyRelu", activation_params = [0.3]', ", z"),
        (', activation = "HardSigmoid", activation_params = [0.3, 0.4]', ""),
        (', activation = "Clip", activation_params = [-0.5, 0.75]', ", z"),
    ],
)
def test_convolutions_that_onnx_runtime_fused(said: str, added: str) -> None:
    weights = ", ".join(f"{n:.3f}" for n in normal(8, 108))
    text = FUSED.format(weights=weights, said=said, added=added)
    agrees(text, {"x": normal(9, 1, 4, 5, 6), "z": normal(10, 1, 6, 5, 6)})
