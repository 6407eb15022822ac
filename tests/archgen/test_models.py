"""A request for a model gives a bound model or a message that says what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from host_only import invoke
from networks import model
from onnx import AttributeProto, TensorProto, helper, numpy_helper, parser
from role_nets import saved

import archgen
from archgen.check.reference import run_reference
from archgen.cli.models import models
from archgen.models.load import ModelError, SourceModel, load_calibration, open_model
from archgen.studies.design import designed, points
from archgen.zoo.catalog import build
from compiler.api import is_outside, load, numbers_in, prepared
from compiler.frontend import stored_tensors
from compiler.frontend.stored_tensors import pieces_in, seed_of
from compiler.lowering.lower import Lower

Dim = int | str | None
node = helper.make_node


def linear(shape: list[Dim], opset: int = 17, ir: int = 8) -> onnx.ModelProto:
    """y = x @ w on a last axis of 4."""
    product, weight = node("MatMul", ["x", "w"], ["y"]), {"w": np.ones((4, 3), np.float32)}
    proto = model([product], {"x": shape}, {"y": [*shape[:-1], 3]}, weight, opset=opset)
    proto.ir_version = ir
    return proto


def input_shape(model: SourceModel) -> list[int]:
    return [dim.dim_value for dim in model.proto.graph.input[0].type.tensor_type.shape.dim]


def test_zoo_specification_with_options() -> None:
    opened = open_model("resnet18:image=32,classes=10,width=0.25", batch=2)
    assert input_shape(opened) == [2, 3, 32, 32]
    assert opened.name == "resnet18:image=32,classes=10,width=0.25"
    assert opened.proto == build("resnet18", 2, image=32, classes=10, width=0.25)


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
    opened = open_model(saved(linear(shape), tmp_path), batch=2, dims=dims)
    assert input_shape(opened) == expected
    inferred = onnx.shape_inference.infer_shapes(opened.proto, strict_mode=True)
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
    (weight,) = open_model(path).proto.graph.initializer
    assert np.array_equal(numpy_helper.to_array(weight), np.ones((4, 3)))
    (tmp_path / "w.bin").write_bytes(b"1234")
    with pytest.raises(ModelError, match="external data"):
        open_model(path)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"w\.bin, which is not beside it"):
        open_model(path)


def test_large_data_of_a_file_stays_there(tmp_path: Path) -> None:
    """And is a part of the content key; the compiler and ONNX Runtime read it where it is."""
    path, (rows, columns) = tmp_path / "net.onnx", (64, 48)
    weights = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    product = model(
        [node("MatMul", ["x", "w"], ["y"])], {"x": [1, rows]}, {"y": [1, columns]}, {"w": weights}
    )
    onnx.save(product, path, save_as_external_data=True, size_threshold=0, location="w.bin")
    opened = open_model(path)
    (tensor,) = opened.proto.graph.initializer
    assert not tensor.raw_data
    assert np.array_equal(numbers_in(tensor), weights)
    assert np.array_equal(numpy_helper.to_array(opened.complete.graph.initializer[0]), weights)
    x = np.ones((1, rows), np.float32)
    assert np.allclose(run_reference(opened.proto, {"x": x})["y"], x @ weights, atol=1e-4)
    (held,) = load(opened.proto, "net").graph.initializers.values()
    assert held.const_value is not None and np.array_equal(held.const_value.numpy(), weights)
    key, data = opened.content_key, (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").write_bytes(bytes(4) + data[4:])
    assert open_model(path).content_key != key
    (tmp_path / "w.bin").write_bytes(data[:-4])
    with pytest.raises(ModelError, match=r"damaged: initializer .w. holds 12284 bytes"):
        open_model(path)


def test_all_numbers_may_be_in_a_file(tmp_path: Path) -> None:
    """A single one and none too."""
    nodes = [node("Add", ["x", "s"], ["z"]), node("Concat", ["z", "e"], ["y"], axis=1)]
    weights = {"s": np.float32(0.5), "e": np.zeros((2, 0), np.float32)}
    proto, path = model(nodes, {"x": [2, 3]}, {"y": [2, 3]}, weights), tmp_path / "net.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w", size_threshold=0)
    opened = onnx.load(path, load_external_data=False)
    for tensor in opened.graph.initializer:
        stored_tensors.set_folder(tensor, str(tmp_path))
    lowered = Lower().apply(prepared(opened, "net"), "bf16")
    made = [np.asarray(t.data).tolist() for t in lowered.tensors.values() if t.data is not None]
    assert 0.5 in made


def test_weights_of_a_large_network_are_made_layer_by_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A network of 7 billion parameters is opened and lowered as a small message; what a layer
    has depends on the seed and its name alone."""
    spec = "llama:layers={},hidden=4096,heads=32,groups=8,wide=14336"
    one, many = (open_model(spec.format(layers)) for layers in (1, 32))
    graph = many.proto.graph
    assert sum(math.prod(tensor.dims) for tensor in graph.initializer) > 6.9e9
    assert many.proto.ByteSize() < 4 << 20
    assert len(many.content_key) == 64
    lowered = Lower().apply(prepared(many.proto, "net"), "bf16")
    assert sum(t.elements for t in lowered.tensors.values() if t.data is not None) > 6.9e9
    first = {t.name: t for t in one.proto.graph.initializer}
    name = "layers.0.attention.key.weight"
    again = next(tensor for tensor in graph.initializer if tensor.name == name)
    assert again == first[name] and is_outside(again)
    values = numbers_in(again)
    assert 0.01 < values.std() < 0.1
    assert numbers_in(again) is values and not values.flags.writeable  # made lately
    with monkeypatch.context() as patch:
        patch.setattr(stored_tensors, "_LATELY", 0)  # as of what is too large to be kept
        pieces = [each for _, each in pieces_in(again, 1 << 17)]
    assert len(pieces) == 32 and np.array_equal(np.concatenate(pieces), values)
    seeds = {seed_of(values), seed_of(values[1:]), seed_of(values[:-1]), seed_of(values.T)}
    assert len(seeds - {None}) == 4 and seed_of(values.copy()) is None
    others = [t for t in graph.initializer if t.name.endswith("key.weight")][1:5]
    other, *_ = (numbers_in(each) for each in others)  # as many as are kept
    assert seed_of(values) is None and numbers_in(again) is not values
    assert np.array_equal(values, numbers_in(again))
    assert len(np.unique(values.view("V4096"), axis=0)) == values.nbytes // 4096  # none is another
    assert abs((values * other).mean()) < values.var() / 100


def _external(proto: onnx.ModelProto, location: str) -> None:
    tensor = proto.graph.initializer.add(
        name="far", dims=[4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value=location)


def _branching() -> list[onnx.NodeProto]:
    """What a branch reads from around it makes the circle."""
    inner = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    branch = helper.make_graph([node("Relu", ["after"], ["r"])], "b", [], [inner])
    choice = node("If", ["x"], ["chosen"], then_branch=branch, else_branch=branch)
    return [choice, node("Neg", ["chosen"], ["after"])]


def _counting() -> Iterator[onnx.NodeProto]:
    for name, number in (("first", 0), ("end", 4_000_000_000), ("step", 1)):
        value = helper.make_tensor(name, TensorProto.INT64, [], [number])
        yield node("Constant", [], [name], value=value)
    yield node("Range", ["first", "end", "step"], ["r"], name="r")


def _untyped() -> onnx.NodeProto:
    pool = node("MaxPool", ["x"], ["p"], name="pool", kernel_shape=[1])
    pool.attribute[0].type = AttributeProto.UNDEFINED
    return pool


def _long_constant() -> onnx.NodeProto:
    value = helper.make_tensor("v", TensorProto.INT4, [3], [1, 2, 3])
    value.int32_data.append(9)
    return node("Constant", [], ["c"], value=value)


def _recursive(proto: onnx.ModelProto) -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    for name, called in (("F", "G"), ("G", "F")):
        body = [helper.make_node(called, ["a"], ["b"], domain="d")]
        proto.functions.append(helper.make_function("d", name, ["a"], ["b"], body, opsets))
    proto.opset_import.append(opsets[1])
    proto.graph.node.append(helper.make_node("F", ["x"], ["z"], domain="d"))


Change = Callable[[onnx.ModelProto], object]


def _with(*nodes: onnx.NodeProto) -> Change:
    return lambda proto: proto.graph.node.extend(nodes)


FILES: list[tuple[bytes | None, str]] = [
    (None, "does not exist"),
    (b"", "is empty"),
    (b"\xff\xd8\xff\xe0 not protobuf", "not an ONNX model"),
    (b"just some words\n" * 9, "not an ONNX model"),
    (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    (onnx.ModelProto(ir_version=8).SerializeToString(), "not an ONNX model"),
    (linear([1, 4], opset=99).SerializeToString(), "operator set 99"),
    (linear([1, 4], opset=0).SerializeToString(), "operator set 0"),
    (linear([1, 4], ir=99).SerializeToString(), "IR version 99"),
    (linear([1, 4]).SerializeToString().replace(b"MatMul", b"\xff\xfeMul!"),
     "damaged: node 0: its operator type is not text"),
]  # fmt: skip
BROKEN: list[tuple[Change, str]] = [
    (lambda proto: proto.graph.initializer.pop(), "reads 'w', which nothing produces"),
    (lambda proto: setattr(proto.graph.node[0], "op_type", "MatMull"),
     r"\(ai.onnx.MatMull\): ONNX has no such operator .did you mean 'MatMul'"),
    (lambda proto: _external(proto, "a" * 5000), "a{5000}, which is not beside it"),
    (lambda proto: _external(proto, "a" * 200 + "\0"), "which is not beside it"),
    (lambda proto: setattr(proto.graph.input[0].type.tensor_type, "elem_type", 0),
     "damaged: input 'x' has no element type"),
    (_with(node("Relu", ["x"], ["a"], name="first"), node("Neg", ["x"], ["a"], name="second")),
     r"'second' .* makes 'a', and so do the results of node 'first' \(ai.onnx.Relu"),
    (lambda proto: setattr(proto.graph.initializer[0], "raw_data", b"abc"),
     "initializer 'w' holds 3 bytes of data, and its shape .4, 3. takes 48"),
    (_with(_long_constant()),
     "node 1: its 'value' holds 3 numbers of data, and its shape .3. takes 2"),
    (_with(node("Softmax", ["x"], ["s"], name="soft", axis="one")),
     r"node 'soft' \(ai.onnx.Softmax\): its attribute 'axis' holds one string where one int"),
    (_with(node("Constant", [], ["c"], name="empty")), "'empty' .*Constant. has 0 attributes, not"),
    (_with(_untyped()), "'pool' .*'kernel_shape' holds a value of no type where several ints"),
    (_with(node("Relu", ["b"], ["a"], name="first"), node("Add", ["a", "x"], ["b"])),
     "in a circle: .*(node 'first' .ai.onnx.Relu. > the Add that makes 'b'|'b' > node 'first')"),
    (_with(*_branching()), "in a circle: .*(makes 'chosen' > |makes 'after' > )"),
    (_with(*_counting()), r"node 'r' \(ai.onnx.Range\): from 0 to 4000000000 by 1 is 29.8 GiB"),
    (_recursive, "may not call itself.*('d.F' > 'd.G' > 'd.F'|'d.G' > 'd.F' > 'd.G')"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "words"), FILES)
def test_wrong_files_are_explained(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "net.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=words):
        open_model(str(path))
    with pytest.raises(ModelError, match="is a directory"):
        open_model(str(tmp_path))


def test_a_folder_is_named_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("networks", "resnet18"):
        (tmp_path / name).mkdir()
    with pytest.raises(ModelError, match="networks is a directory"):
        open_model("networks")
    assert open_model("resnet18:image=32").name == "resnet18:image=32", "the zoo's stay"


def test_what_is_no_file_is_not_read() -> None:
    """Its end may never come."""
    for opened in (open_model, load_calibration):
        with pytest.raises(ModelError, match="not a regular file"):
            opened("/dev/zero")
    for read in (archgen.load, archgen.read_assembly):
        with pytest.raises(OSError, match="not a regular file"):
            read("/dev/zero")


@pytest.mark.parametrize(("change", "words"), BROKEN)
def test_broken_networks_are_explained(tmp_path: Path, change: Change, words: str) -> None:
    change(proto := linear([1, 4]))
    with pytest.raises(ModelError, match=words):
        open_model(saved(proto, tmp_path))


def test_packed_and_complex_constants_are_whole(tmp_path: Path) -> None:
    proto = linear([1, 4])
    for kind in (TensorProto.INT4, TensorProto.COMPLEX64, TensorProto.FLOAT16, TensorProto.BOOL):
        for raw in (False, True):
            tensor = helper.make_tensor(f"t{kind}{raw}", kind, [3], [1, 0, 1])
            if raw:
                tensor = numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name)
            proto.graph.initializer.append(tensor)
    text = helper.make_tensor("text", TensorProto.STRING, [2], [b"a", b"b"])
    proto.graph.initializer.append(text)
    assert open_model(saved(proto, tmp_path)).proto.graph.initializer[-1] == text


def test_an_empty_input_has_to_be_said_and_a_batch_is_never_empty(tmp_path: Path) -> None:
    path = saved(linear(["n", 0, 4]), tmp_path)
    free = r"axis 1 \(0 in the file, which many exporters write for free\)"
    with pytest.raises(ModelError, match=free):
        open_model(path)
    assert CliRunner().invoke(models, [str(path), "--dim", "x:1=0"]).exit_code == 0
    assert input_shape(open_model(path, dims={"x:1": 0})) == [1, 0, 4]
    assert input_shape(open_model(path, dims={"x:1": 3})) == [1, 3, 4]
    with pytest.raises(ModelError, match=r"a batch of 0 has no samples to compute \('x', axis 0\)"):
        open_model(path, dims={"x:1": 3, "n": 0})
    with pytest.raises(ModelError, match="a batch of 0 has no samples") as both:
        open_model(path, dims={"x:1": 3, "n": 0}, roles={"y": "data"})
    assert "--role y=data: there is no such input" in str(both.value)


def test_an_output_that_the_file_declares_otherwise_is_said(tmp_path: Path) -> None:
    proto = linear([4, 4])
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 5
    asked = ("ascend-310-like", "-m", saved(proto, tmp_path), "--effort", 0)
    for done in (invoke("compile", *asked), invoke("study", *asked, "--no-plots", "-o", tmp_path)):
        assert "note: y is [4, 3], though the file declares [4, 5]" in done.output


def test_operators_that_onnx_runtime_adds_to_the_standard_domain_are_opened(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
      g (float[1, 4] x, float[4] s) => (float[1, 4] y)
      { y = SimplifiedLayerNormalization (x, s) }"""
    open_model(saved(onnx.parser.parse_model(text), tmp_path))


def test_sparse_constants_are_refused_by_name(tmp_path: Path) -> None:
    proto = linear([1, 4])
    values = helper.make_tensor("table", onnx.TensorProto.FLOAT, [1], [2.0])
    places = helper.make_tensor("at", onnx.TensorProto.INT64, [1], [3])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4, 3]))
    with pytest.raises(ModelError, match="keeps 'table' as sparse constants"):
        open_model(saved(proto, tmp_path))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("resnet5O", "did you mean 'resnet50'"),
        ("resnet50.onnx", "the zoo has 'resnet50'"),
        ("resnet50:image=big", "not a whole number"),
        ("resnet50:image", "no '=value'"),
        ("resnet50:image=-3,foo=2", "image=-3 must be positive\nresnet50 has no option 'foo'"),
        ("resnet50:imag=3", "did you mean 'image'"),
        ("resnet18:image=1.5", "not a whole number"),
        ("resnet18:weights=0", "keeps its weights"),
        ("", "unknown network"),
    ],
)
def test_wrong_specifications_are_explained(spec: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        open_model(spec)


def test_a_file_beside_a_misspelt_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("camera.onnx").touch()
    with pytest.raises(ModelError, match=r"unknown network 'camera.onx'.*did you mean camera.onnx"):
        open_model("camera.onx")


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ({"sqe": 3}, "did you mean 'seq'"),
        ({"seq": -1}, "must be 0 .empty. or positive"),
        ({"x:2": 8}, "fixes this dimension at 4"),
    ],
)
def test_wrong_dimensions_are_explained(tmp_path: Path, dims: dict[str, int], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        open_model(saved(linear(["n", "seq", 4]), tmp_path), dims=dims)


def test_the_batch_of_a_model_is_the_one_that_its_file_fixes(tmp_path: Path) -> None:
    """Samples that a file fixes are what is run where none are asked for."""
    weights = {"w": np.ones((8, 4), np.float32)}
    product = node("MatMul", ["x", "w"], ["y"])
    path = saved(model([product], {"x": [10, 8]}, {"y": [10, 4]}, weights), tmp_path)
    assert open_model(path).batch == 10
    (point,) = points(designed("mcu-npu", path))
    assert point.batch == 10
    (asked,) = points(designed("mcu-npu", path, batches=1))
    assert asked.batch == 1
    assert open_model("squeezenet:image=64").batch == 1


def test_a_file_runs_at_the_batch_that_it_has_where_a_state_has_another_size(
    tmp_path: Path,
) -> None:
    """A recurrent layer over 33 bands of one sample, whose state the file fixes at 33."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[1, 4, 33, 8] x, float[1, 33, 6] h) => (float[4, 1, 33, 6] y, float[1, 33, 6] z)
        <int64[3] steps = {4, 33, 8}> {
          c = Conv <pads = [1, 1, 1, 1]> (x, k)
          s = Reshape (c, steps)
          y, z = GRU <hidden_size = 6> (s, w, r, , , h)
        }"""
    )
    shapes = {"k": (4, 4, 3, 3), "w": (1, 18, 8), "r": (1, 18, 6)}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes.items()
    )
    path = saved(model, tmp_path)
    as_it_is = open_model(path)
    assert as_it_is.batch == 1
    assert open_model(path, 1).content_key == as_it_is.content_key
    (point,) = points(designed("mcu-npu", path))
    assert point.batch == 1
    with pytest.raises(ModelError, match="fixes its batch: 'x' at 1, 'h' at 33"):
        open_model(path, 2)
