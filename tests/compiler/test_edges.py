"""Operators at the edge of their definitions, compiled and executed beside ONNX Runtime; those that
ONNX does not define run there, or are refused in words: node, operator, reason and remedy.
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import one_node
import onnx
import onnx_ir as ir
import pytest
from networks import cleaned, model_of
from one_node import agree, reference
from onnx import helper

from archgen.check.reference import run_node, run_reference, sample_inputs
from archgen.models.load import SourceModel
from archgen.schema import load_arch
from archgen.studies.prepare import prepare
from compiler.api import CompileOptions, CompileResult, compile_model
from compiler.errors import UnsupportedModel
from compiler.frontend.importer import load
from compiler.lowering.lower import lower
from compiler.lowering.node import NoNest, numpy_type
from compiler.options import stages_for
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import Array, HostNode

INTEGER = "cocco-simba-1c"
"""int8 products, real values in fp32 or fp16."""


Feeds = dict[str, Array]


def inputs_of(proto: onnx.ModelProto) -> Feeds:
    made: Feeds = {}
    for index, value in enumerate(proto.graph.input):
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [dim.dim_value for dim in kind.shape.dim]
        random = np.random.default_rng(index)
        made[value.name] = np.asarray(random.standard_normal(shape) * 8).astype(dtype)
    return made


def executed(
    text: str, opset: int, inputs: Feeds | None = None, machine: str = INTEGER
) -> tuple[CompileResult, Feeds]:
    """The network compiled for a machine, and its outputs."""
    proto, options = model_of(text, opset), CompileOptions(stages=stages_for(0))
    return one_node.executed(proto, inputs or inputs_of(proto), load_arch(machine), options)


def checked(text: str, opset: int, inputs: Feeds | None = None, atol: float = 1e-5) -> bool:
    """Whether the host has a part in it; AssertionError unless it is right."""
    proto = model_of(text, opset)
    inputs = inputs or inputs_of(proto)
    made, got = executed(text, opset, inputs)
    agree(got, reference(proto, inputs), atol=atol)
    return bool(made.host)


WEIGHTS = f"uint8[3,2,2,2] w = {{{', '.join(str(number % 17) for number in range(24))}}}"
STATISTICS = """g (float[2,3,4] x, float{width} s, float{width} b)
    => (float[2,3,4] y, float[{shape}] mean, float[{shape}] inverse) {{
    y, mean, inverse = LayerNormalization <axis = {axis}> (x, s, b) }}"""
NATIVE = {
    "a convolution of integers": (
        f"g (uint8[1,2,5,5] x) => (int32[1,3,4,4] y) <{WEIGHTS}> {{ y = ConvInteger (x, w) }}", 13),
    "with padding": (
        f"g (uint8[1,2,5,5] x) => (int32[1,3,5,5] y) <{WEIGHTS}> "
        '{ y = ConvInteger <auto_pad = "SAME_UPPER"> (x, w) }', 13),
    "with a zero point": (
        f"g (uint8[1,2,5,5] x) => (int32[1,3,3,3] y) <{WEIGHTS}, uint8 z = {{3}}> "
        "{ y = ConvInteger <pads = [1,1,1,1], strides = [2,2]> (x, w, z) }", 13),
    "statistics of rows": (STATISTICS.format(width="[4]", shape="2,3,1", axis=-1), 17),
    "statistics of planes": (STATISTICS.format(width="[3,4]", shape="2,1,1", axis=1), 17),
}  # fmt: skip


@pytest.mark.parametrize("name", NATIVE)
def test_operators_without_the_host(name: str) -> None:
    assert not checked(*NATIVE[name])


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_cast_to_half_precision_rounds(half: str) -> None:
    number = onnx.TensorProto.DataType.Value(half.upper())
    on_host = checked(
        f"g (float[2,8] x) => (float[2,8] y) {{ h = Cast <to = {number}> (x) "
        "f = Cast <to = 1> (h) y = Relu (f) }",
        13,
    )
    types = load_arch(INTEGER).vector.types
    assert on_host == ({"float16": "fp16", "bfloat16": "bf16"}[half] not in types)


def test_integers_cast_to_half_precision_are_rounded_too() -> None:
    text = "g (int32[1,4] x) => (float[1,4] y) { h = Cast <to = 10> (x) y = Cast <to = 1> (h) }"
    checked(text, 13, {"x": np.array([[2049, 70_000, -4095, 7]], np.int32)})


def test_a_transposed_convolution_may_be_longer_than_its_windows_reach() -> None:
    text = """g (float[1,1,3,3] x, float[1,2,3,3] w) => (float[1,2,10,8] y) {
                y = ConvTranspose <strides = [3,2], output_shape = [10,8]> (x, w) }"""
    checked(text, 11)


def test_double_values_reach_the_host_as_such() -> None:
    text = """g (double[1,1,40,40] x, double[1,40,40,2] p) => (double[1,1,40,40] y) {
                y = GridSample (x, p) }"""
    assert checked(text, 20)


def test_values_that_numpy_has_no_type_for_cross_to_the_host() -> None:
    """int64 to bfloat16 and back, where neither is a type of the vector engine."""
    text = "g (float[2,4] x) => (float[2,4] y) { h = Cast <to = 16> (x)  y = Cast <to = 1> (h) }"
    x = np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)
    made, got = executed(text, 13, {"x": x}, "soma-edge")
    assert [node.kind for node in made.host] == ["Cast"]
    np.testing.assert_array_equal(got["y"], x.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_a_vector_of_zeros_has_no_direction() -> None:
    x = np.array([[3, 4, 0], [0, 0, 0]], np.float32)
    text = "g (float[2,3] x) => (float[2,3] y) { y = LpNormalization (x) }"
    got = executed(text, 22, {"x": x})[1]["y"]
    np.testing.assert_allclose(got, [[0.6, 0.8, 0], [0, 0, 0]], rtol=1e-6)


DROPOUTS = {
    "nothing is said": "(x)",
    "in inference": "(x, half, no)",
    "nothing is to be dropped": "(x, none, yes)",
}
CONSTANTS = "<float half = {0.5}, float none = {0}, bool no = {0}, bool yes = {1}>"


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_keeps_everything(name: str) -> None:
    checked(
        f"g (float[2,3] x) => (float[2,3] y, bool[2,3] mask) {CONSTANTS} "
        f"{{ d, mask = Dropout {DROPOUTS[name]} y = Relu (d) }}",
        13,
    )


@pytest.mark.parametrize(
    ("port", "given", "reason"),
    [("", "yes", "drops other values in each run"), (", bool t", "t", "known at run time only")],
)
def test_dropout_in_training_is_refused(port: str, given: str, reason: str) -> None:
    text = (
        f"g (float[2,3] x{port}) => (float[2,3] y) {CONSTANTS} "
        f"{{ [drop] y = Dropout (x, half, {given}) }}"
    )
    with pytest.raises(UnsupportedModel, match=rf"node 'drop' \(ai\.onnx\.Dropout\): .*{reason}"):
        compile_model(model_of(text, 13), load_arch(INTEGER))


def test_an_old_fourier_transform_names_its_axis() -> None:
    text = "g (float[1,10,10,1] x) => (float[1,10,10,2] y) { y = DFT <axis = 2> (x) }"
    x = inputs_of(model_of(text, 17))["x"]
    got = executed(text, 17, {"x": x})[1]["y"]
    want = np.fft.fft(x[..., 0], axis=2)
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=1e-3)


def test_half_of_a_short_time_spectrum_is_the_default() -> None:
    text = """g (float[1,32,1] x) => (float[1,5,5,2] y) <int64 step = {6}, int64 frame = {8}> {
                y = STFT (x, step, , frame) }"""
    checked(text, 17, atol=1e-3)


def test_double_values_that_only_the_host_touches_stay_double() -> None:
    text = "g (double[5,5] x) => (double y) { y = Det (x) }"
    x = np.diag([1 + 2.0**-40, 1, 1, 1, 1])
    assert executed(text, 13, {"x": x})[1]["y"] == 1 + 2.0**-40


def test_types_that_no_memory_stores_are_named() -> None:
    value = ir.Value(name="e", type=ir.TensorType(ir.DataType.COMPLEX64))
    with pytest.raises(NoNest, match="e has elements of type COMPLEX64; memories store bool, int8"):
        numpy_type(value)


def test_an_operator_without_definition_at_its_opset_is_refused() -> None:
    text = "g (float[2] x) => (float[2] y) { [odd] y = Relu <alpha = 1.0> (x) }"
    with pytest.raises(
        UnsupportedModel, match=r"node 'odd' \(ai\.onnx\.Relu\): Unrecognized attribute"
    ):
        compile_model(model_of(text, 17), load_arch(INTEGER))


def network(text: str, *domains: str) -> onnx.ModelProto:
    """Its outputs have no type: whoever opens it finds out."""
    more = "".join(f', "{domain}" : 1' for domain in ("com.microsoft", *domains))
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21{more}]> net {text}')
    for value in proto.graph.output:
        value.ClearField("type")
    return proto


FOREIGN = {
    "Inverse": "(float[1,3,3] x) => (float[1,3,3] y) { y = com.microsoft.Inverse (x) }",
    "MultiHeadAttention": """(float[1,4,32] x, float[1,2,3,16] k, float[1,2,3,16] v)
      => (float[1,4,32] y) { y = com.microsoft.MultiHeadAttention <num_heads = 2> (x, k, v) }""",
    "GroupQueryAttention": """(float[1,1,32] q, float[1,1,16] k, float[1,1,16] v,
      float[1,2,5,8] p, float[1,2,5,8] r) => (float[1,1,32] y, float[1,2,6,8] a, float[1,2,6,8] b)
      <int32[1] last = {5}, int32[1] total = {6}> { y, a, b = com.microsoft.GroupQueryAttention
        <num_heads = 4, kv_num_heads = 2, smooth_softmax = 1> (q, k, v, p, r, last, total) }""",
}
"""The second with keys by head."""


@pytest.mark.parametrize("name", FOREIGN)
def test_operators_of_onnx_runtime_run_on_the_host(name: str) -> None:
    """Between two that the machine runs, so that their shapes must be known."""
    proto = network(FOREIGN[name])
    proto.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    proto.graph.output.append(onnx.ValueInfoProto(name="z"))
    options, inputs = CompileOptions("int8", stages=stages_for(0)), sample_inputs(proto)
    made, got = one_node.executed(proto, inputs, load_arch("soma-edge"), options)
    assert [node.kind for node in made.host] == [f"com.microsoft.{name}"]
    agree(got, reference(proto, inputs))


def refused(proto: onnx.ModelProto) -> str:
    with pytest.raises(UnsupportedModel) as caught:
        compile_model(load(proto, "net"), load_arch("soma-edge"))
    return str(caught.value)


def test_quantizations_of_onnx_runtime_are_those_of_onnx() -> None:
    """As its quantizer writes them for 16-bit activations in old operator sets."""
    text = """(float[1,4,32] x, int8[32,4] w, float s, float t) => (uint8[1,4,4] y)
      <int8 z = {0}, uint8 v = {0}> {
        wide = com.microsoft.DequantizeLinear (w, s, z)
        m = MatMul (x, wide)
        y = com.microsoft.QuantizeLinear (m, t, v) }"""
    made = load(network(text), "net")
    assert {node.domain for node in made.graph} == {""}


def test_an_unknown_domain_is_refused_with_all_its_nodes() -> None:
    """Also what stands behind them is not reached: nothing is known of it."""
    text = """(float[1,4,32] x) => (float[1,4,32] y) { [foo] a = com.acme.Frobnicate (x)
      b = Relu (a) [bar] y = com.acme.Defrobnicate (b) }"""
    said = refused(network(text, "com.acme"))
    places = "node 'foo' (com.acme.Frobnicate), node 'bar' (com.acme.Defrobnicate)"
    assert f"{places}: the domain is unknown here" in said
    assert "register it (docs/extending.md)" in said
    with pytest.raises(UnsupportedModel, match="node 'foo'"):  # before ONNX Runtime quantizes
        prepare(SourceModel("net", network(text, "com.acme")), "int8")


def test_an_unknown_operator_inside_a_branch_or_a_function_is_refused() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "own" : 1, "com.acme" : 1]>
      net (float[2] x, bool c) => (float[2] y) {
        a = own.known (x)
        y = If (c) <then_branch = t () => (float[2] p) { p = com.acme.Inner (a) },
                    else_branch = e () => (float[2] q) { q = Neg (a) }>
      }
      <domain: "own", opset_import: ["" : 21, "com.acme" : 1]>
      known (a) => (b) { [deep] b = com.acme.Deep (a) }"""
    said = refused(onnx.parser.parse_model(text))
    assert "(com.acme.Inner)" in said and "node 'deep' (com.acme.Deep)" in said
    assert "own.known" not in said


OUTSIDE = {
    "a tree": (
        """g (float[1,8] x) => (float[1,1] y) {
        [forest] y = ai.onnx.ml.TreeEnsembleRegressor <n_targets=1> (x)
        }""",
        "node 'forest' (ai.onnx.ml.TreeEnsembleRegressor): classical machine learning and ",
    ),
    "chance": (
        "g (float[4] x) => (float[4] y) { [n] r = RandomNormalLike (x)  y = Add (x, r) }",
        "node 'n' (ai.onnx.RandomNormalLike): it makes other values in each run, ",
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_no_accelerator_is_given_is_refused_before_it_is_quantized(name: str) -> None:
    text, said = OUTSIDE[name]
    given = f'<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1]> {text}'
    with pytest.raises(UnsupportedModel) as caught:
        prepare(SourceModel("net", onnx.parser.parse_model(given)), "int8")
    assert str(caught.value).startswith(f"net: {said}")


def test_an_operator_without_a_kernel_is_refused_before_it_runs() -> None:
    """ONNX Runtime has this one for other processors alone."""
    said = refused(
        network("""(float[1,4,320] x, float[320] b) => (float[1,4,320] y)
      { [BiasAdd] y = com.microsoft.BiasAdd (x, b, x) }""")
    )
    assert "node 'BiasAdd' (com.microsoft.BiasAdd): Could not find an implementation" in said


# Operators of ONNX that a Python function says in simpler ones, against ONNX's own meaning.


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
