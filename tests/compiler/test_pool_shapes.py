"""Pools that round their shape up: as many windows as ONNX Runtime has, with its values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from machines import NAMED
from networks import reference
from onnx import TensorProto, helper

from archgen.check.reference import run_node
from compiler.context import CompileOptions, Context
from compiler.pipeline import compile_model, nests, prepared
from compiler.tensor_ir.interpreter import run
from simmodel.execute import execute
from simmodel.verify import verify


def pool(kind: str, size: int, **attributes: object) -> onnx.ModelProto:
    node = helper.make_node(kind, ["x"], ["y"], ceil_mode=1, **attributes)
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2, size))]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2, None))]
    graph = helper.make_graph([node], "net", ports, out)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 19)])


def every(kind: str) -> Iterator[tuple[int, dict[str, object]]]:
    """Size and attributes of pools along one axis; borders are smaller than the window."""
    for size, kernel, stride, dilation in itertools.product(
        (5, 6, 9), (1, 2, 3), (1, 2, 3), (1, 2)
    ):
        given = {"kernel_shape": [kernel], "strides": [stride], "dilations": [dilation]}
        included = (0, 1) if kind == "AveragePool" else (None,)
        for before, after, include in itertools.product(range(kernel), range(kernel), included):
            more = {} if include is None else {"count_include_pad": include}
            yield size, given | {"pads": [before, after]} | more
        yield size, given | {"auto_pad": "VALID"}


@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool"])
def test_windows_are_those_of_onnx_runtime(kind: str) -> None:
    rng = np.random.default_rng(2)
    arch = NAMED["plain"]
    for size, attributes in every(kind):
        model = pool(kind, size, **attributes)
        feeds = {"x": rng.standard_normal((1, 2, size)).astype(np.float32)}
        expected = reference(model, feeds)["y"]
        graph = nests(prepared(model, "net"), Context(arch, CompileOptions(dtype="fp32")))
        got = run(graph, feeds, run_node)["y"]
        assert got.shape == expected.shape, (size, attributes)
        np.testing.assert_allclose(got, expected, 1e-5, 1e-6, err_msg=f"{size} {attributes}")


def test_a_window_that_begins_in_the_border_is_none_of_the_program_either() -> None:
    model = pool("MaxPool", 32, kernel_shape=[2], strides=[3], pads=[1, 1])
    feeds = {"x": np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 2, 32)}
    expected = reference(model, feeds)["y"]
    assert expected.shape == (1, 2, 11)
    program = compile_model(model, NAMED["plain"], CompileOptions(dtype="fp32")).program
    verify(program, NAMED["plain"])
    got = execute(program, feeds, NAMED["plain"], host=run_node)["y"]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool"])
def test_planes_smaller_than_their_window_leave_nothing_to_go_on_with(kind: str) -> None:
    """As in three dimensions, planes come first, then the depth: nothing, not 2 rows again."""
    arch = NAMED["plain"]
    model = pool(kind, 7, kernel_shape=[2, 2, 3])
    for port, shape in ((model.graph.input[0], (1, 3, 2, 1, 7)), (model.graph.output[0], None)):
        port.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, shape))
    graph = nests(prepared(model, "net"), Context(arch, CompileOptions(dtype="fp32")))
    feeds = {"x": np.ones((1, 3, 2, 1, 7), np.float32)}
    assert run(graph, feeds, run_node)["y"].shape == (1, 3, 1, 0, 5)
