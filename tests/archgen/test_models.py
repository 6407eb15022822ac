"""A request for a model gives a bound model or a message that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from archgen.models import ModelError, SourceModel, open_model
from archgen.zoo.catalog import build

Dim = int | str | None


def linear(shape: list[Dim], opset: int = 17, ir: int = 8) -> onnx.ModelProto:
    """y = x @ w on a last axis of 4."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [*shape[:-1], 3])
    weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y])
    graph.initializer.append(weight)
    return helper.make_model(graph, ir_version=ir, opset_imports=[helper.make_opsetid("", opset)])


def saved(proto: onnx.ModelProto, directory: Path) -> Path:
    path = directory / "net.onnx"
    onnx.save(proto, path)
    return path


def input_shape(model: SourceModel) -> list[int]:
    return [dim.dim_value for dim in model.proto.graph.input[0].type.tensor_type.shape.dim]


def test_zoo_specification_with_options() -> None:
    model = open_model("resnet18:image=32,classes=10,width=0.25", batch=2)
    assert input_shape(model) == [2, 3, 32, 32]
    assert model.name == "resnet18:image=32,classes=10,width=0.25"
    assert model.proto == build("resnet18", 2, image=32, classes=10, width=0.25)


@pytest.mark.parametrize(
    ("shape", "dims", "expected"),
    [
        (["batch", 4], {}, [2, 4]),
        (["unk__214", 4], {}, [2, 4]),
        ([-1, 4], {}, [2, 4]),
        ([None, 4], {}, [2, 4]),
        (["n", "seq", 4], {"seq": 7}, [2, 7, 4]),
        (["n", "?", 4], {"x:1": 7}, [2, 7, 4]),
        (["n", "seq", 4], {"x:1": 7, "n": 5}, [5, 7, 4]),
        ([1, 6, 4], {}, [2, 6, 4]),
    ],
)
def test_free_dimensions_are_bound(
    tmp_path: Path, shape: list[Dim], dims: dict[str, int], expected: list[int]
) -> None:
    model = open_model(saved(linear(shape), tmp_path), batch=2, dims=dims)
    assert input_shape(model) == expected
    inferred = onnx.shape_inference.infer_shapes(model.proto, strict_mode=True)
    output = inferred.graph.output[0].type.tensor_type.shape
    assert [dim.dim_value for dim in output.dim] == [*expected[:-1], 3]


def test_batch_is_one_unless_said(tmp_path: Path) -> None:
    assert input_shape(open_model(saved(linear(["n", 4]), tmp_path))) == [1, 4]


def test_unbound_dimensions_are_listed(tmp_path: Path) -> None:
    path = saved(linear(["n", "seq", "?", 4]), tmp_path)
    with pytest.raises(ModelError) as caught:
        open_model(str(path))
    text = str(caught.value)
    assert "input 'x', axis 1, named 'seq'" in text
    assert "input 'x', axis 2" in text
    assert "--dim seq=<size> --dim x:2=<size>" in text


def test_reshape_to_a_fixed_batch_cannot_be_rebatched(tmp_path: Path) -> None:
    proto = linear([1, 4])
    proto.graph.node[0].output[0] = "product"
    shape = numpy_helper.from_array(np.array([1, 3]), "shape")
    proto.graph.initializer.append(shape)
    proto.graph.node.append(helper.make_node("Reshape", ["product", "shape"], ["y"]))
    path = saved(proto, tmp_path)
    assert input_shape(open_model(path, batch=1)) == [1, 4]
    with pytest.raises(ModelError, match="cannot run at batch 2"):
        open_model(path, batch=2)


def test_content_key_tells_models_apart(tmp_path: Path) -> None:
    path = saved(linear(["n", 4]), tmp_path)
    one, again, two = (open_model(path, batch=batch).content_key for batch in (1, 1, 2))
    assert one == again
    assert one != two
    changed = linear(["n", 4])
    changed.graph.initializer[0].raw_data = np.zeros((4, 3), np.float32).tobytes()
    assert open_model(saved(changed, tmp_path)).content_key != one


def test_external_data_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(linear([1, 4]), path, save_as_external_data=True, size_threshold=0, location="w.bin")
    model = open_model(path)
    assert np.array_equal(numpy_helper.to_array(model.proto.graph.initializer[0]), np.ones((4, 3)))
    (tmp_path / "w.bin").write_bytes(b"1234")
    with pytest.raises(ModelError, match="external data"):
        open_model(path)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"w\.bin, which is not beside it"):
        open_model(path)


def _text(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def _proto(proto: onnx.ModelProto) -> Callable[[Path], object]:
    return lambda path: onnx.save(proto, path)


def _dangling() -> onnx.ModelProto:
    proto = linear([1, 4])
    del proto.graph.initializer[:]
    return proto


def _misspelt() -> onnx.ModelProto:
    proto = linear([1, 4])
    proto.graph.node[0].op_type = "MatMull"
    return proto


def _external(location: str) -> onnx.ModelProto:
    proto = linear([1, 4])
    tensor = proto.graph.initializer.add(
        name="far", dims=[4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value=location)
    return proto


def _untyped() -> onnx.ModelProto:
    proto = linear([1, 4])
    proto.graph.input[0].type.tensor_type.elem_type = 0
    return proto


def _garbled(old: bytes, new: bytes) -> Callable[[Path], object]:
    content = linear([1, 4]).SerializeToString()
    assert old in content and len(old) == len(new)
    return _text(content.replace(old, new))


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a directory"),
        (_text(b""), "is empty"),
        (_text(b"\xff\xd8\xff\xe0 not protobuf"), "not an ONNX model"),
        (_text(b"just some words\n" * 9), "not an ONNX model"),
        (_text(b"version https://git-lfs.github.com/spec/v1\n"), "Git LFS pointer"),
        (_proto(onnx.ModelProto(ir_version=8)), "not an ONNX model"),
        (_proto(linear([1, 4], opset=99)), "operator set 99"),
        (_proto(linear([1, 4], ir=99)), "IR version 99"),
        (_proto(_dangling()), "reads 'w', which nothing produces"),
        (_proto(_misspelt()), "no operator 'MatMull' .did you mean 'MatMul'"),
        (_proto(_external("a" * 5000)), "a{5000}, which is not beside it"),
        (_proto(_external("a" * 200 + "\0")), "which is not beside it"),
        (_proto(_untyped()), "damaged: input 'x' has no element type"),
        (_garbled(b"MatMul", b"\xff\xfeMul!"), r"damaged: node 0: its operator type is not text"),
    ],
)
def test_wrong_files_are_explained(
    tmp_path: Path, prepare: Callable[[Path], object], words: str
) -> None:
    path = tmp_path / "net.onnx"
    prepare(path)
    with pytest.raises(ModelError, match=words):
        open_model(str(path))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("resnet5O", "did you mean 'resnet50'"),
        ("resnet50.onnx", "the zoo has 'resnet50'"),
        ("resnet50:image=big", "not a whole number"),
        ("resnet50:image", "no '=value'"),
        ("resnet50:imag=3", "did you mean 'image'"),
        ("resnet18:image=1.5", "not a whole number"),
        ("resnet18:weights=0", "keeps its weights"),
        ("", "unknown network"),
    ],
)
def test_wrong_specifications_are_explained(spec: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        open_model(spec)


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ({"sqe": 3}, "did you mean 'seq'"),
        ({"seq": 0}, "must be positive"),
        ({"x:2": 8}, "fixes this dimension at 4"),
    ],
)
def test_wrong_dimensions_are_explained(tmp_path: Path, dims: dict[str, int], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        open_model(saved(linear(["n", "seq", 4]), tmp_path), dims=dims)
