"""Operators with windows, and Resize, of any geometry: as nests, what ONNX Runtime computes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import NAMED, machine
from one_node import (
    Case,
    agree,
    case,
    check,
    executed,
    ints,
    lowered,
    model_of,
    real,
    reference,
    sample,
)
from onnx import numpy_helper

from compiler.api import CompileOptions
from compiler.frontend.importer import load
from compiler.frontend.rewrite import static_shape
from compiler.target.vector_functions import ExpandFunctions
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import HostNode, Nest


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    """One to three dimensions, any window that fits, groups down to a channel each."""
    rank = draw(st.integers(1, 3))

    def numbers(low: int, high: int, count: int = rank) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    kernel, dilations = numbers(1, 3), numbers(1, 2)
    groups, across, made = draw(st.integers(1, 3)), *numbers(1, 2, 2)
    window = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    extents = [w + n for w, n in zip(window, numbers(0, 4), strict=True)]
    return case(
        "Conv", (draw(st.integers(1, 2)), groups * across, *extents),
        real(groups * made, across, *kernel),
        *([real(groups * made)] if draw(st.booleans()) else []),
        strides=numbers(1, 3), group=groups, dilations=dilations,
        pads=[draw(st.integers(0, w - 1)) for w in window * 2],
    )  # fmt: skip


@settings(max_examples=80)
@given(convolutions())
def test_convolutions_of_any_geometry(node: Case) -> None:
    try:
        model, feeds = model_of(node)
        reference(model, feeds)
    except Exception:  # pads that leave nothing, which ONNX Runtime refuses as well
        return
    check(model, feeds, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "kernel", "said"),
    [
        ((2, 6, 9, 8), (4, 6, 3, 2), {"pads": [1, 0, 1, 1], "strides": [2, 1]}),
        ((1, 6, 9, 8), (4, 3, 3, 3), {"group": 2, "dilations": [2, 1]}),
        ((1, 6, 9, 8), (6, 1, 5, 5), {"group": 6}),
        ((2, 4, 20), (3, 4, 7), {"pads": [3, 3]}),
    ],
    ids=str,
)
def test_convolutions_with_computed_weights(
    shape: tuple[int, ...], kernel: tuple[int, ...], said: dict[str, Any]
) -> None:
    """Correlations of two inputs, and weights that a network makes of another input."""
    model, feeds = model_of(case("Conv", shape, kernel, **said))
    check(model, feeds, atol=1e-5)
    for arch in (machine(types=("fp32",), matrix={"rate": {"fp32": 1}}), machine(types=("fp32",))):
        _, found = executed(model, feeds, arch, CompileOptions("fp32"))
        assert not any(isinstance(step, HostNode) for step in lowered(model).steps)
        agree(found, reference(model, feeds), 1e-5, 1e-5)


@settings(max_examples=60)
@given(st.data())
def test_transposed_convolutions_of_any_geometry(data: st.DataObject) -> None:
    extents = (3, 4, 2)[: data.draw(st.integers(2, 3))]
    strides, dilations, kernel = (
        [data.draw(st.integers(1, most)) for _ in extents] for most in (3, 2, 4)
    )
    group = data.draw(st.integers(1, 2))
    pads = [data.draw(st.integers(0, k - 1)) for k in kernel * 2]
    extra = [data.draw(st.integers(0, s - 1)) for s in strides]
    node = case(
        "ConvTranspose", (2, 2, *extents), real(2, 3, *kernel),
        *([real(3 * group)] if data.draw(st.booleans()) else []), strides=strides, pads=pads,
        dilations=dilations, group=group, output_padding=extra,
    )  # fmt: skip
    if min(static_shape(load(model_of(node)[0], "g").graph.outputs[0])) > 0:
        check(*model_of(node), atol=1e-5)


@pytest.mark.parametrize(("step", "deep", "group"), [(1, 4, 1), (2, 7, 2), (3, 11, 1)])
def test_bytes_of_volumes_transposed_are_those_of_onnx_runtime(
    step: int, deep: int, group: int
) -> None:
    scales = np.tile(np.float32([1 / 32, 1 / 64, 1 / 128]), group)
    constants = {
        "w": sample((4, 3, 2, 3, 2), case("ConvTranspose", dtype="int8")), "ws": scales[:3],
        "bias": np.arange(-9, 9, 3, np.int32)[: 3 * group], "bs": scales * np.float32(1 / 32),
    }  # fmt: skip
    head = "strides = [{0}, 2, 1], group = {1}, pads = [{2}, 1, 0, 0, 0, 1]"
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (uint8[1, 4, 4, 5, 3] x) => (int8[1, {3 * group}, {deep}, h, w] y)
        <float s = {{0.03125}}, uint8 o = {{13}}, float t = {{0.25}}, int8 p = {{-7}}> {{
          a = DequantizeLinear (x, s, o)
          k = DequantizeLinear <axis = 1> (w, ws)
          b = DequantizeLinear <axis = 0> (bias, bs)
          c = ConvTranspose <{head.format(step, group, int(step < 3))}> (a, k, b)
          y = QuantizeLinear (c, t, p)
        }}""")
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    feeds = {"x": sample((1, 4, 4, 5, 3), case("ConvTranspose", dtype="uint8"))}
    graph = lowered(model)
    kinds = {graph.tensors[nest.tensor].dtype for nest in graph.steps if isinstance(nest, Nest)}
    assert kinds <= {"uint8", "int8"}
    np.testing.assert_array_equal(run(graph, feeds)["y"], *reference(model, feeds))


@settings(max_examples=40)
@given(st.data())
def test_pools_of_any_geometry(data: st.DataObject) -> None:
    kernel = [data.draw(st.integers(1, 3)) for _ in range(2)]
    pads = [data.draw(st.integers(0, k - 1)) for k in kernel * 2]
    strides = [data.draw(st.integers(1, 2)) for _ in range(2)]
    op = data.draw(st.sampled_from(["MaxPool", "AveragePool"]))
    more = {"count_include_pad": data.draw(st.integers(0, 1))} if op == "AveragePool" else {}
    node = case(op, (1, 2, 6, 7), kernel_shape=kernel, pads=pads, strides=strides, **more)
    check(*model_of(node))


def pools(kind: str) -> Iterator[Case]:
    """Pools along one axis that round their shape up; borders are smaller than the window."""
    for size, kernel, stride, dilation in itertools.product(
        (5, 6, 9), (1, 2, 3), (1, 2, 3), (1, 2)
    ):
        given = {"kernel_shape": [kernel], "strides": [stride], "dilations": [dilation]}
        included = (0, 1) if kind == "AveragePool" else (None,)
        sides: list[dict[str, Any]] = [{"auto_pad": "VALID"}]
        for before, after, include in itertools.product(range(kernel), range(kernel), included):
            more = {} if include is None else {"count_include_pad": include}
            sides.append({"pads": [before, after], **more})
        for side in sides:
            yield case(kind, (1, 2, size), opset=19, ceil_mode=1, **given, **side)


@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool"])
def test_as_many_windows_as_onnx_runtime_has(kind: str) -> None:
    for node in pools(kind):
        model, feeds = model_of(node)
        try:
            check(model, feeds)
        except AssertionError as wrong:
            raise AssertionError(str(node)) from wrong


def test_a_window_that_begins_in_the_border_is_none_of_the_program_either() -> None:
    model, feeds = model_of(
        case("MaxPool", (1, 2, 32), kernel_shape=[2], strides=[3], pads=[1, 1], ceil_mode=1)
    )
    (expected,) = reference(model, feeds)
    assert expected.shape == (1, 2, 11)
    (got,) = executed(model, feeds, NAMED["plain"])[1].values()
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool"])
def test_planes_smaller_than_their_window_leave_nothing_to_go_on_with(kind: str) -> None:
    """As in three dimensions, planes come first, then the depth: nothing, not 2 rows again."""
    node = case(kind, (1, 3, 2, 1, 7), kernel_shape=[2, 2, 3], ceil_mode=1, opset=19)
    model, feeds = model_of(node)
    (got,) = run(lowered(model), feeds).values()
    assert got.shape == (1, 3, 1, 0, 5)


# Resize.

RULES = (
    "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_crop_and_resize",
    "half_pixel_symmetric", "tf_half_pixel_for_nn",
)  # fmt: skip
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


@st.composite
def settings_of(draw: st.DrawFn) -> dict[str, Any]:
    """Attributes of a Resize that mean something together."""
    rule = draw(st.sampled_from(RULES))
    mode = draw(st.sampled_from(("nearest", "linear", "cubic")))
    made: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": rule}
    if mode == "nearest":
        return {**made, "nearest_mode": draw(st.sampled_from(ROUNDINGS))}
    if mode == "cubic":
        made["exclude_outside"] = draw(st.integers(0, 1))
        made["cubic_coeff_a"] = draw(st.sampled_from((-0.75, -0.5)))
    if rule == "tf_crop_and_resize":
        return {**made, "extrapolation_value": draw(st.sampled_from((0.0, 3.0)))}
    return {**made, "antialias": draw(st.integers(0, 1))}


SIDES = st.integers(1, 12)


@settings(max_examples=60)
@given(
    attributes=settings_of(),
    given_sides=st.tuples(SIDES, SIDES),
    made=st.tuples(SIDES, SIDES),
    corner=st.tuples(*[st.integers(0, 6)] * 2),
    size=st.tuples(*[st.integers(1, 8)] * 2),
)
def test_every_mode(
    attributes: dict[str, Any],
    given_sides: tuple[int, int],
    made: tuple[int, int],
    corner: tuple[int, int],
    size: tuple[int, int],
) -> None:
    start = np.array(corner, "f4") / 8
    roi = np.array([*start, *start + np.array(size, "f4") / 8], "f4")
    crops = attributes["coordinate_transformation_mode"] == "tf_crop_and_resize"
    node = case("Resize", (1, 2, *given_sides), roi if crops else None, None, ints(*made),
                axes=[2, 3], **attributes)  # fmt: skip
    model, feeds = model_of(node)
    agree(run(lowered(model), feeds), reference(model, feeds), 1e-4, 1e-4)


@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("rule", ["half_pixel", "align_corners"])
def test_an_interpolation_reads_its_neighbours_alone_where_no_array_multiplies(
    rule: str, window: bool
) -> None:
    """By 3/2 down and 3/4 across."""
    node = case("Resize", (2, 3, 16, 32), None, None, ints(24, 24), axes=[2, 3], mode="linear",
                coordinate_transformation_mode=rule)  # fmt: skip
    model, feeds = model_of(node)
    arch = machine(
        types=("int8",),
        matrix={"rate": {"int8": 1}},
        vector={"types": ("int8", "int32", "fp32"), "window": window},
    )
    graph = ExpandFunctions().apply(lowered(model), arch)
    nests = [step for step in graph.steps if isinstance(step, Nest)]
    assert all(math.prod(n.extent for n in nest.dims[nest.rank :]) <= 6 for nest in nests)
    agree(run(graph, feeds), reference(model, feeds), 1e-5, 1e-5)
    _, found = executed(model, feeds, arch, CompileOptions())
    agree(found, reference(model, feeds), 1e-5, 1e-5)


@pytest.mark.parametrize(("given_side", "made"), [(33, 65), (29, 57), (32, 15), (23, 22)])
@pytest.mark.parametrize("rule", ["half_pixel", "align_corners"])
def test_neighbours_of_sides_that_no_period_divides(given_side: int, made: int, rule: str) -> None:
    """What is in front of the first whole period and behind the last has a window of its own, and
    none reads a border."""
    node = case("Resize", (2, given_side, 3), None, None, ints(made), axes=[1], mode="linear",
                coordinate_transformation_mode=rule)  # fmt: skip
    model, feeds = model_of(node)
    arch = machine(types=("int8",), matrix={"rate": {"int8": 1}},
                   vector={"types": ("int8", "int32", "fp32")})  # fmt: skip
    graph = ExpandFunctions().apply(lowered(model), arch)
    nests = [step for step in graph.steps if isinstance(step, Nest)]
    products = sum(math.prod(dim.extent for dim in nest.dims) for nest in nests)
    assert products <= 4 * 2 * made * 3
    assert all(access.pad is None for nest in nests for access in nest.operands)
    agree(run(graph, feeds), reference(model, feeds), 1e-5, 1e-5)
    _, found = executed(model, feeds, arch, CompileOptions())
    agree(found, reference(model, feeds), 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("channels", "made", "turns", "innermost"),
    [(16, (9, 11), [3, 2], 1), (16, (3, 4), [2, 3], 1), (16, (9, 4), [3, 2], 1),
     (3, (9, 11), [3, 2], 3), (16, (9, 8), [2], 3)],
)  # fmt: skip
def test_axes_are_interpolated_where_the_last_has_fewest_elements_beside_it(
    channels: int, made: tuple[int, int], turns: list[int], innermost: int
) -> None:
    """What shrinks comes first; channels, if they are many, are last where rows would be added up
    along themselves."""
    node = case("Resize", (1, channels, 7, 8), None, None, ints(*made), axes=[2, 3], mode="linear")
    model, feeds = model_of(node)
    graph = lowered(model)
    nests = [step for step in graph.steps if isinstance(step, Nest)]
    shapes = [(1, channels, 7, 8), *(graph.tensors[nest.tensor].shape for nest in nests)]
    pairs = itertools.pairwise(shapes)
    assert [next(a for a in (2, 3) if old[a] != new[a]) for old, new in pairs] == turns
    assert graph.tensors[nests[-1].tensor].storage.strides[innermost] == 1
    agree(run(graph, feeds), reference(model, feeds), 1e-5, 1e-5)


def test_positions_of_nearly_even_steps_are_a_few_copies() -> None:
    """Of 65 results of 33 places, every second is a run of neighbours."""
    node = case("Resize", (2, 33, 3), None, None, ints(65), axes=[1], mode="nearest",
                coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    model, feeds = model_of(node)
    graph = lowered(model)
    assert len(graph.steps) <= 4
    assert all(isinstance(step, Nest) for step in graph.steps)
    agree(run(graph, feeds), reference(model, feeds))


@pytest.mark.parametrize(("extent", "step"), [(50, -1), (97, -1), (160, -3)])
def test_a_long_row_is_turned_round_by_blocks(extent: int, step: int) -> None:
    node = case("Slice", (2, extent, 3), ints(-1), ints(-1000), ints(1), ints(step))
    model, feeds = model_of(node)
    graph = lowered(model)
    assert len(graph.steps) <= 40
    agree(run(graph, feeds), reference(model, feeds))


def test_the_ratio_of_the_sides_is_kept() -> None:
    for policy in ("not_larger", "not_smaller"):
        node = case("Resize", (1, 2, 7, 4), None, None, ints(9, 8), axes=[2, 3], mode="linear",
                    keep_aspect_ratio_policy=policy)  # fmt: skip
        check(*model_of(node), atol=1e-5)


@pytest.mark.parametrize(
    ("rule", "given_sides", "made"),
    [
        ("half_pixel", (3, 7), (9, 35)),
        ("pytorch_half_pixel", (1, 4), (6, 4)),
        ("asymmetric", (3, 5), (6, 35)),
        ("asymmetric", (1, 6), (4, 6)),
        ("align_corners", (3, 7), (7, 25)),
    ],
)
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_enlarged_bytes_are_those_of_onnx_runtime(
    rule: str, given_sides: tuple[int, int], made: tuple[int, int], kind: str
) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g ({kind}[1, 3, {given_sides[0]}, {given_sides[1]}] x) => ({kind}[1, 3, h, w] y)
        <float s = {{0.05}}, {kind} o = {{3}}, float t = {{0.043}}, {kind} p = {{7}},
         int64[4] sizes = {{1, 3, {made[0]}, {made[1]}}}> {{
          r = DequantizeLinear (x, s, o)
          e = Resize <mode = "linear", coordinate_transformation_mode = "{rule}"> (r, , , sizes)
          y = QuantizeLinear (e, t, p)
        }}""")
    feeds = {"x": sample((1, 3, *given_sides), case("Resize", dtype=kind))}
    graph = lowered(model)
    assert {graph.tensors[step.tensor].dtype for step in graph.steps if isinstance(step, Nest)} == {
        kind
    }
    np.testing.assert_array_equal(run(graph, feeds)["y"], *reference(model, feeds))


# Fourier transforms.


@pytest.mark.parametrize(
    "node",
    [
        case("DFT", (2, 30, 1), None, ints(1)[0], onesided=1),
        case("DFT", (2, 5, 20, 2), ints(24)[0], ints(2)[0]),
        case("STFT", (2, 70, 1), ints(13)[0], real(16)),
        case("STFT", (1, 70, 2), ints(9)[0], None, ints(20)[0], onesided=0),
    ],
    ids=str,
)
def test_fourier_transforms_are_products(node: Case) -> None:
    model, feeds = model_of(node)
    graph = lowered(model)
    assert any(isinstance(step, Nest) and step.contraction for step in graph.steps)
    agree(run(graph, feeds), reference(model, feeds), 1e-5, 1e-4)
