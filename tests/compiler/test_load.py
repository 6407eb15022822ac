"""Loading: old forms, constant chains, branches, functions; and what is refused, with its list."""

from __future__ import annotations

from pathlib import Path

import networks
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from evaluate import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import cleaned, feeds_of, model_of
from one_node import agree, reference
from onnx.reference import ReferenceEvaluator

from compiler.errors import UnsupportedModel
from compiler.frontend.importer import load
from compiler.frontend.rewrite import ORIGIN

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def ops(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


OLD_FORMS = {
    "clip": (7, "g (float[2,3] x) => (float[2,3] y) { y = Clip <min = -0.5, max = 0.25> (x) }"),
    "pad": (7, "g (float[2,3] x) => (float[4,3] y) { y = Pad <pads=[1,0,1,0], value=2.0> (x) }"),
    "slice": (7, "g (float[4,3] x) => (float[2,3] y) { y = Slice <starts = [1], ends = [3]> (x) }"),
    "squeeze": (11, "g (float[2,1,3] x) => (float[2,3] y) { y = Squeeze <axes = [1]> (x) }"),
    "unsqueeze": (11, "g (float[2,3] x) => (float[2,1,3] y) { y = Unsqueeze <axes = [1]> (x) }"),
    "sum": (11, "g (float[2,3] x) => (float[2] y) { y = ReduceSum <axes=[1], keepdims=0> (x) }"),
    "max": (13, "g (float[2,3] x) => (float[2,1] y) { y = ReduceMax <axes = [-1]> (x) }"),
    "softmax": (11, "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax <axis = 1> (x) }"),
    "log-softmax": (11, "g (float[2,3,4] x) => (float[2,3,4] y) { y = LogSoftmax (x) }"),
    "split": (11, "g (float[5,2] x) => (float[2,2] y, float[3,2] z) "
                  "{ y, z = Split <axis = 0, split = [2,3]> (x) }"),
    "even-split": (13, "g (float[4,2] x) => (float[2,2] y, float[2,2] z) "
                       "{ y, z = Split <axis = 0> (x) }"),
    "upsample": (9, "g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1,1,2,2}> "
                    "{ y = Upsample <mode = \"nearest\"> (x, s) }"),
    "resize": (10, "g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1,1,2,2}> "
                   "{ y = Resize <mode = \"linear\"> (x, s) }"),
    "dropout": (11, "g (float[2,3] x) => (float[2,3] y) { d = Dropout <ratio = 0.5> (x) "
                    "y = Relu (d) }"),
    "top-k": (9, "g (float[2,3] x) => (float[2,1] y, int64[2,1] i) { y, i = TopK <k = 1> (x) }"),
    "batch-norm": (8, "g (float[1,2,2] x) => (float[1,2,2] y) <float[2] s = {1,2}, "
                      "float[2] b = {0,1}, float[2] m = {0,1}, float[2] v = {1,4}> "
                      "{ y = BatchNormalization (x, s, b, m, v) }"),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD_FORMS)
def test_old_forms_keep_their_meaning(name: str) -> None:
    opset, text = OLD_FORMS[name]
    proto = model_of(text, opset)
    model = load(model_of(text, opset), name)
    inputs = feeds_of(proto)
    want = reference(proto, inputs)
    agree(networks.reference(ir.to_proto(model), inputs), want, atol=1e-6)
    agree(evaluate(cleaned(model), inputs), want, atol=1e-6)


def test_statistics_that_training_left_are_no_results() -> None:
    text = """g (float[1, 2, 3] x, float[2] s) => (float[1, 2, 3] y) {
      y, mean, var, saved_mean, saved_var = BatchNormalization (x, s, s, s, s) }"""
    (node,) = load(model_of(text, 8), "g").graph
    assert [value.name for value in node.outputs] == ["y"]


RESOLVED = {
    "a chain of shapes is a constant": (
        """g (float[2,3,4] x) => (float[2,12] y) <int64 zero = {0}, int64[1] rest = {-1}> {
             s = Shape (x)
             n = Gather (s, zero)
             axis = Constant <value_ints = [0]> ()
             u = Unsqueeze (n, axis)
             t = Concat <axis = 0> (u, rest)
             y = Reshape (x, t)
           }""",
        ["Reshape"],
    ),
    "of a constant If the taken branch": (
        """g (float[2] x) => (float[2] y) <bool c = {1}> {
             y = If (c) <
               then_branch = t () => (float[2] a) { k = Relu (x) a = Neg (k) },
               else_branch = e () => (float[2] b) { b = Abs (x) }
             >
           }""",
        ["Relu", "Neg"],
    ),
    "a function": (
        """g (float[2] x) => (float[2] y) { y = local.twice (x) }
           <domain: "local", opset_import: ["" : 17]>
           twice (a) => (b) { b = Add (a, a) }""",
        ["Add"],
    ),
}


@pytest.mark.parametrize("name", RESOLVED)
def test_what_is_certain_is_resolved(name: str) -> None:
    text, nodes = RESOLVED[name]
    header = '<ir_version: 10, opset_import: ["" : 17, "local" : 1]>'
    proto = onnx.parser.parse_model(f"{header}\n{text}")
    (want,) = (value.type.tensor_type.shape.dim for value in proto.graph.output)
    model = load(proto, name)
    (y,) = model.graph.outputs
    assert (ops(model), y.name, y.shape) == (nodes, "y", [dim.dim_value for dim in want])


def test_an_if_on_data_becomes_both_branches_and_a_selection() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
                a = Relu (x)
                y = If (c) <
                  then_branch = t () => (float[2] p) { p = Neg (a) },
                  else_branch = e () => (float[2] q) { q = Abs (a) }
                >
              }"""
    made = ["Relu", "Reshape", "Neg", "Abs", "Where"]
    assert ops(cleaned(load(model_of(text, 17), "both"))) == made


@pytest.mark.parametrize(
    ("opset", "operator"),
    [
        (23, "Attention <is_causal = 1> (r, r, r)"),
        (13, "MeanVarianceNormalization <axes = [0,2]> (r)"),
        (24, "Swish <alpha = 1.5> (r)"),
        (24, "Swish (r)"),
        (28, "SwiGLU (r, x)"),
        (19, "CastLike (r, x)"),
    ],
)
def test_operators_defined_by_others_are_expanded(opset: int, operator: str) -> None:
    text = f"g (float[1,2,3,4] x) => (float[1,2,3,4] y) {{ r = Abs (x) y = {operator} }}"
    proto = model_of(text, opset)
    model = cleaned(load(model_of(text, opset), "defined"))
    assert not set(ops(model)) & {operator.split()[0], "CastLike", "Softmax"}
    inputs = feeds_of(proto)
    want = ReferenceEvaluator(proto).run(None, inputs)[0]
    np.testing.assert_allclose(evaluate(model, inputs)["y"], want, rtol=1e-5, atol=1e-6)


INLINED = {
    "default axes": (
        13,
        "g (float[2,3,4,4] x) => (float[2,3,4,4] y) { y = MeanVarianceNormalization (x) }",
    ),
    "a cache and no mask": (
        23,
        "g (float[1,2,1,8] x, float[1,2,5,8] k, float[1,2,5,8] v) "
        "=> (float[1,2,1,8] y, float[1,2,6,8] p, float[1,2,6,8] q) "
        "{ y, p, q = Attention (x, x, x, , k, v) }",
    ),
    "a constant mask": (
        23,
        "g (float[1,2,2,4] x) => (float[1,2,2,4] y) <float[2,2] m = {0, -1, -2, 0}> "
        "{ y = Attention <scale = 0.5> (x, x, x, m) }",
    ),
    "constant sizes": (
        18,
        "g (float[5,4] x) => (float[3,6] y) <int64[2] s = {3, 6}> { y = CenterCropPad (x, s) }",
    ),
    "constant angles": (
        23,
        "g (float[1,2,2,4] x) => (float[1,2,2,4] y) "
        "<float[2,2] c = {1, 0.5, 0.25, 0.125}, float[2,2] s = {0, 1, 0.5, 0.25}, "
        "int64[1,2] p = {1, 0}> { y = RotaryEmbedding (x, c, s, p) }",
    ),
}


@pytest.mark.parametrize("name", INLINED)
def test_definitions_know_defaults_absent_inputs_and_constants(name: str) -> None:
    opset, text = INLINED[name]
    proto = model_of(text, opset)
    model = cleaned(load(model_of(text, opset), "defined"))
    inputs = feeds_of(proto)
    agree(evaluate(model, inputs), reference(proto, inputs), 1e-4, 1e-5)
    assert {node.metadata_props[ORIGIN] for node in model.graph} == {
        f"{proto.graph.node[0].op_type}_0"
    }


def test_every_node_has_a_name_and_an_origin() -> None:
    text = "g (float[2] x) => (float[2] y) { [same] a = Relu (x) [same] b = Neg (a) y = Abs (b) }"
    nodes = list(load(model_of(text, 17), "names").graph)
    assert [node.name for node in nodes] == ["same", "same_1", "Abs_2"]
    assert [node.metadata_props[ORIGIN] for node in nodes] == ["same", "same_1", "Abs_2"]


CONTRADICTIONS = {
    "shapes": (
        "g (float[2,3] x, float[2,3] w) => (float[2,3] y) { y = MatMul (x, w) }",
        "MatMul",
    ),
    "channels": (
        "g (float[1,13,8,8] x, float[5,11,1,1] w) => (float[1,5,8,8] y) { y = Conv (x, w) }",
        r"take 11 channels; the input \[1, 13, 8, 8\] has 13",
    ),
    "groups": (
        "g (float[1,4,8,8] x, float[3,2,1,1] w) => (float[1,3,8,8] y) "
        "{ y = Conv <group = 2> (x, w) }",
        "in 2 groups",
    ),
    "transposed": (
        "g (float[1,4,8,8] x, float[3,2,1,1] w) => (float[1,2,8,8] y) { y = ConvTranspose (x, w) }",
        "take 3 channels",
    ),
    "attribute": (
        "g (float[2,3] x) => (float[2,3] y) { y = Mul <auto_pad = \"VALID\"> (x, x) }",
        "Unrecognized attribute: auto_pad",
    ),
    "place": (
        "g (float[2,3] x) => (float[2,2] y) <int64[2] i = {0, 3}> { y = Gather <axis = 1> (x, i) }",
        "its constant place 3 is outside the 3 that there are",
    ),
    "places of elements": (
        "g (float[2,3] x) => (float[2,1] y) <int64[2,1] i = {0, -4}> "
        "{ y = GatherElements <axis = 1> (x, i) }",
        "its constant place -4 is outside the 3",
    ),
    "places of rows": (
        "g (float[2,3] x, float[1] u) => (float[2,3] y) <int64[1,2] i = {1, 5}> "
        "{ y = ScatterND (x, i, u) }",
        "its constant place 5 is outside the 3",
    ),
    "constants": (
        "g (float[2] x) => (float[?] y) <float a = {0}, float b = {3}, float step = {0}> "
        "{ r = Range (a, b, step) y = Add (r, x) }",
        "it has no result for its constant inputs: .*zero",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_nodes_that_contradict_their_operator_are_refused(name: str) -> None:
    text, reason = CONTRADICTIONS[name]
    with pytest.raises(UnsupportedModel, match=reason):
        load(model_of(text, 17), "g")


def test_an_input_that_is_an_output_of_any_shape_keeps_its_own() -> None:
    text = "g (float[2,3] x) => (float[?,?] x, float[?,?] y) { y = Neg (x) }"
    graph = load(model_of(text, 17), "g").graph
    assert [value.shape for value in graph.outputs] == [[2, 3]] * 2


UNDEFINED = {
    "lower bound": ("Clip", "Clip (x, wrong)", "nan", "its lower bound is NaN"),
    "upper bound": ("Clip", "Clip (x, , wrong)", "nan", "its upper bound is NaN"),
    "huge scale": ("DequantizeLinear", "DequantizeLinear (q, wrong)", "inf", "its scale is inf"),
    "no scale": ("DequantizeLinear", "DequantizeLinear (q, wrong)", "nan", "its scale is nan"),
    "zero scale": ("DequantizeLinear", "DequantizeLinear (q, wrong)", "0", "its scale is 0"),
    "negative scale": ("QuantizeLinear", "QuantizeLinear (x, wrong)", "-1", "its scale is -1"),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_parameters_without_a_meaning_are_refused_with_their_node(name: str) -> None:
    operator, call, value, reason = UNDEFINED[name]
    steps = f"q = Cast <to = 3> (x) [here] y = {call}"
    model = model_of(f"g (float[2] x) => (float[2] y) {{ {steps} }}", 21)
    wrong = onnx.numpy_helper.from_array(np.float32(value), "wrong")
    model.graph.initializer.append(wrong)
    with pytest.raises(UnsupportedModel) as caught:
        load(model, "net")
    assert str(caught.value).startswith(f"net: node 'here' (ai.onnx.{operator}): {reason}")


def test_operators_that_changed_with_opset_seven_are_refused_before() -> None:
    text = "g (float[2] x) => (float[2] y) { r = Relu (x) y = Add (r, x) }"
    with pytest.raises(UnsupportedModel, match="older than 7, since which Add is another"):
        load(model_of(text, 6), "old")
    assert ops(load(model_of("g (float[2] x) => (float[2] y) { y = Relu (x) }", 6), "old"))


def test_sequences_of_known_length_are_their_tensors() -> None:
    text = """g (float[2,4] x) => (float[2,2,4] y, int64 n) <int64 f = {0}, int64 l = {-1}> {
        none = SequenceEmpty () r = Relu (x) a = SequenceInsert (none, r) s = Sqrt (x)
        b = SequenceInsert (a, s, f) t = Tanh (x) c = SequenceInsert (b, t, l)
        d = SequenceErase (c, f) n = SequenceLength (d)
        y = ConcatFromSequence <axis = 1, new_axis = 1> (d)
    }"""
    model = load(model_of(text, 17), "net")
    assert [op for op in ops(model) if op != "Sqrt"] == [
        "Relu", "Tanh", "Unsqueeze", "Unsqueeze", "Concat",
    ]  # fmt: skip
    (joined,) = (node for node in model.graph if node.op_type == "Concat")
    made = [v.producer().inputs[0].producer().op_type for v in joined.inputs]
    assert made == ["Tanh", "Relu"]


NO_NUMBERS = {
    "text": (
        "g (string[2] x) => (float[2] y) { [parse] y = Cast <to = 1> (x) }",
        "node 'parse' (ai.onnx.Cast) takes 'x', text",
    ),
    "sequences": (
        "g (seq(float[2]) s, float[2] x) => (seq(float[2]) t) { t = SequenceInsert (s, x) }",
        "node 'SequenceInsert_0' (ai.onnx.SequenceInsert) takes 's', a sequence; "
        "node 'SequenceInsert_0' (ai.onnx.SequenceInsert) gives 't', a sequence",
    ),
    "in between": (
        """g (float[3,4] x, int64 i) => (float[?,4] y) {
             [cut] s = SplitToSequence <axis = 0> (x)
             y = SequenceAt (s, i)
           }""",
        "node 'cut' (ai.onnx.SequenceConstruct) makes 'cut_SequenceConstruct__2', a sequence",
    ),
}


@pytest.mark.parametrize("name", list(NO_NUMBERS))
def test_values_that_are_no_tensors_of_numbers_are_refused_with_who_has_them(name: str) -> None:
    text, why = NO_NUMBERS[name]
    with pytest.raises(UnsupportedModel) as caught:
        load(model_of(text, 17), name)
    rest = (
        "machines compute with tensors of numbers; leave the rest to what prepares and reads data"
    )
    assert str(caught.value) == f"{name}: {why}; {rest}"


@pytest.mark.parametrize("name", ["light_resnet50", "light_vgg19", "light_densenet121"])
def test_weights_made_by_the_graph_become_constants_without_memory(name: str) -> None:
    model = cleaned(load(onnx.load(LIGHT / f"{name}.onnx"), name))
    assert "ConstantOfShape" not in ops(model)
    weights = [node.inputs[1] for node in model.graph if node.op_type in ("Conv", "MatMul")]
    assert weights and all(w is not None and w.const_value is not None for w in weights)


@settings(max_examples=40)
@given(st.data())
def test_random_chains_keep_their_meaning(data: st.DataObject) -> None:
    """Unary, affine, window and normalizing operators in any order, before and after prepare."""
    lines, weights, value = [], ["float[2,2,1,1] w = {1,-2,0.5,1}"], "x"
    steps = {
        "conv": "Conv ({0}, w)", "bn": "BatchNormalization ({0}, s, k, k, s)", "relu": "Relu ({0})",
        "mul": "Mul ({0}, c)", "add": "Add (c, {0})", "sub": "Sub (c, {0})",
        "softmax": "Softmax <axis = 1> ({0})", "norm": "InstanceNormalization ({0}, s, k)",
        "sigmoid": "Sigmoid ({0})", "self": "Mul ({0}, x)",
        "pool": "AveragePool <kernel_shape = [3,3], auto_pad = \"SAME_LOWER\"> ({0})",
        "layer": "LayerNormalization ({0}, t)",
    }  # fmt: skip
    weights += ["float[2] s = {1.5,0.5}", "float[2] k = {0.25,-1}", "float[1,2,1,1] c = {2,-1}"]
    weights += ["float[3] t = {1,2,3}"]
    for index, name in enumerate(data.draw(st.lists(st.sampled_from(sorted(steps)), max_size=6))):
        lines.append(f"v{index} = {steps[name].format(value)}")
        value = f"v{index}"
    body = "\n".join([*lines, f"y = Abs ({value})"])
    text = f"g (float[1,2,3,3] x) => (float[1,2,3,3] y) <{', '.join(weights)}> {{ {body} }}"
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 2, 3, 3)).astype(np.float32)}
    want = reference(model_of(text, 17), inputs)[0]
    got = evaluate(cleaned(load(model_of(text, 17), "chain")), inputs)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * max(1.0, float(want.max())))


def test_the_file_stays_as_it_is() -> None:
    """A constant that is an output under another name takes that name, in the graph alone."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y, float[2] named) <float[2] c = {1, 2}>
    { y = Add (x, c)
      named = Identity (c) }"""
    proto = onnx.parser.parse_model(text)
    before = proto.SerializeToString()
    loaded = load(proto, "g")
    assert [value.name for value in loaded.graph.outputs] == ["y", "named"]
    assert proto.SerializeToString() == before
