"""Operators at the edge of their definitions, compiled and executed beside ONNX Runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from archgen.check.reference import run_node
from archgen.schema import load_arch
from compiler.api import CompileOptions, CompileResult, compile_model
from compiler.errors import UnsupportedModel
from compiler.lowering.node import NoNest, numpy_type
from compiler.options import stages_for
from compiler.tensor_ir.nest import Array
from simmodel.execute import run
from simmodel.verify import verify

INTEGER = "cocco-simba-1c"
"""int8 products, real values in fp32 or fp16."""


def model_of(text: str, opset: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')


def inputs_of(proto: onnx.ModelProto) -> dict[str, Array]:
    made: dict[str, Array] = {}
    for index, value in enumerate(proto.graph.input):
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [dim.dim_value for dim in kind.shape.dim]
        random = np.random.default_rng(index)
        made[value.name] = np.asarray(random.standard_normal(shape) * 8).astype(dtype)
    return made


def by_runtime(proto: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    return list(onnxruntime.InferenceSession(proto.SerializeToString()).run(None, inputs))


def checked(text: str, opset: int, inputs: dict[str, Array] | None = None) -> CompileResult:
    """Compiled for a machine with and without the operator's types, and right on it."""
    proto, arch = model_of(text, opset), load_arch(INTEGER)
    inputs = inputs or inputs_of(proto)
    made = compile_model(proto, arch, CompileOptions(stages=stages_for(0)))
    verify(made.program, arch)
    got = run(made.program, inputs, arch, run_node).outputs
    for output, want in zip(proto.graph.output, by_runtime(proto, inputs), strict=True):
        assert got[output.name].dtype == want.dtype
        np.testing.assert_allclose(got[output.name], want, rtol=1e-5, atol=1e-5)
    return made


@pytest.mark.parametrize(("half", "opset"), [("float16", 13), ("bfloat16", 13)])
def test_a_cast_to_half_precision_rounds(half: str, opset: int) -> None:
    number = onnx.TensorProto.DataType.Value(half.upper())
    made = checked(
        f"g (float[2,8] x) => (float[2,8] y) {{ h = Cast <to = {number}> (x) "
        "f = Cast <to = 1> (h) y = Relu (f) }",
        opset,
    )
    types = load_arch(INTEGER).vector.types
    assert bool(made.host) == ({"float16": "fp16", "bfloat16": "bf16"}[half] not in types)


def test_integers_cast_to_half_precision_are_rounded_too() -> None:
    x = np.array([[2049, 70_000, -4095, 7]], np.int32)
    checked(
        "g (int32[1,4] x) => (float[1,4] y) { h = Cast <to = 10> (x) y = Cast <to = 1> (h) }",
        13,
        {"x": x},
    )


@pytest.mark.parametrize(
    "text",
    [
        "g (uint8[1,2,5,5] x) => (int32[1,3,4,4] y) { y = ConvInteger (x, w) }",
        'g (uint8[1,2,5,5] x) => (int32[1,3,5,5] y) '
        '{ y = ConvInteger <auto_pad = "SAME_UPPER"> (x, w) }',
        "g (uint8[1,2,5,5] x) => (int32[1,3,3,3] y) "
        "<uint8 z = {3}> { y = ConvInteger <pads = [1,1,1,1], strides = [2,2]> (x, w, z) }",
    ],
)  # fmt: skip
def test_integer_convolutions_need_no_attributes(text: str) -> None:
    weights = ", ".join(str(number % 17) for number in range(24))
    before, after = text.split("{ y", 1)
    constant = f"uint8[3,2,2,2] w = {{{weights}}}"
    if "<" in before:
        before = before.replace("<", f"<{constant}, ", 1)
    else:
        before = f"{before} <{constant}> "
    assert not checked(f"{before}{{ y{after}", 13).host


@pytest.mark.parametrize("axis", [1, -1])
def test_layer_normalization_gives_its_statistics(axis: int) -> None:
    shape = "2,1,1" if axis == 1 else "2,3,1"
    width = "[3,4]" if axis == 1 else "[4]"
    made = checked(
        f"g (float[2,3,4] x, float{width} s, float{width} b) "
        f"=> (float[2,3,4] y, float[{shape}] mean, float[{shape}] inverse) "
        f"{{ y, mean, inverse = LayerNormalization <axis = {axis}> (x, s, b) }}",
        17,
    )
    assert not made.host


def test_double_values_reach_the_host_as_such() -> None:
    text = """g (double[1,1,40,40] x, double[1,40,40,2] p) => (double[1,1,40,40] y) {
                y = GridSample (x, p)
              }"""
    assert checked(text, 20).host


def test_values_that_numpy_has_no_type_for_cross_to_the_host() -> None:
    """int64 to bfloat16 and back, where neither is a type of the vector engine."""
    text = """g (float[2,4] x) => (float[2,4] y) {
                h = Cast <to = 16> (x)
                y = Cast <to = 1> (h)
              }"""
    x = np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)
    proto, arch = model_of(text, 13), load_arch("soma-edge")
    made = compile_model(proto, arch, CompileOptions(stages=stages_for(0)))
    assert [node.kind for node in made.host] == ["Cast"]
    got = run(made.program, {"x": x}, arch, run_node).outputs["y"]
    np.testing.assert_array_equal(got, x.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_a_transposed_convolution_may_be_longer_than_its_windows_reach() -> None:
    text = """g (float[1,1,3,3] x, float[1,2,3,3] w) => (float[1,2,10,8] y) {
                y = ConvTranspose <strides = [3,2], output_shape = [10,8]> (x, w)
              }"""
    checked(text, 11)


def test_a_vector_of_zeros_has_no_direction() -> None:
    x = np.array([[3, 4, 0], [0, 0, 0]], np.float32)
    proto = model_of("g (float[2,3] x) => (float[2,3] y) { y = LpNormalization (x) }", 22)
    arch = load_arch(INTEGER)
    made = compile_model(proto, arch, CompileOptions(stages=stages_for(0)))
    got = run(made.program, {"x": x}, arch, run_node).outputs["y"]
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
    made = compile_model(
        model_of(text, 17), load_arch(INTEGER), CompileOptions(stages=stages_for(0))
    )
    got = run(made.program, {"x": x}, load_arch(INTEGER), run_node).outputs["y"]
    want = np.fft.fft(x[..., 0], axis=2)
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=1e-3)


def test_half_of_a_short_time_spectrum_is_the_default() -> None:
    text = """g (float[1,32,1] x) => (float[1,5,5,2] y) <int64 step = {6}, int64 frame = {8}> {
                y = STFT (x, step, , frame)
              }"""
    proto, arch = model_of(text, 17), load_arch(INTEGER)
    made = compile_model(proto, arch, CompileOptions(stages=stages_for(0)))
    inputs = inputs_of(proto)
    got = run(made.program, inputs, arch, run_node).outputs["y"]
    np.testing.assert_allclose(got, by_runtime(proto, inputs)[0], atol=1e-3)


def test_double_values_that_only_the_host_touches_stay_double() -> None:
    text = "g (double[5,5] x) => (double y) { y = Det (x) }"
    proto, arch = model_of(text, 13), load_arch(INTEGER)
    made = compile_model(proto, arch, CompileOptions(stages=stages_for(0)))
    x = np.diag([1 + 2.0**-40, 1, 1, 1, 1])
    y = run(made.program, {"x": x}, arch, run_node).outputs["y"]
    assert y == 1 + 2.0**-40


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
