"""Resizing, axis by axis: repetition where possible, else a product with a constant matrix.

Each output position is a weighted sum of a few input positions, with weights that only the
attributes decide: what ONNX Runtime makes of unit vectors. Nearest enlargement by a whole number
repeats elements; any other nearest mode gathers positions; interpolation multiplies by the matrix
of weights along the axis. Positions outside of a crop have no weights; their constant value is
added afterwards.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from onnx import TensorProto, helper

from compiler.frontend.reference_types import open_session
from compiler.lowering.contraction import channels_last
from compiler.lowering.movement import order_like, repeated, take
from compiler.lowering.node import Lowering, Node, NoNest
from compiler.tensor_ir.nest import Access, Affine, Array, Dim, Nest, Tensor, at
from simmodel.arch.element_types import is_float


def resize(node: Node) -> None:
    """Nearest, linear or cubic sampling of any subset of axes."""
    x, shape = node.tensor(0), node.shape()
    node.compose()
    matrices = [_weight_matrix(node, axis) for axis in range(len(shape))]
    fill = _fill(node, matrices)
    chosen = [_single_positions(matrix) for matrix in matrices]
    factors = tuple(_factor(*each) for each in zip(chosen, x.shape, strict=True))
    if all(factors) and fill is None:
        repeated(node, x, node.out, tuple(f or 1 for f in factors))
        return
    changed = [axis for axis, factor in enumerate(factors) if factor != 1]
    changed.sort(key=lambda axis: _turn(axis, x.shape[axis], shape[axis]))
    if not is_float(node.dtype()) and any(chosen[axis] is None for axis in changed):
        raise NoNest("Resize of integers by interpolation")
    order = order_like(x)
    if order[-1] in changed and len(shape) > 2 and shape[1] >= _FEW:
        order = channels_last(len(shape))  # a vector of channels has one weight
    last = node.out if fill is None else f"{node.out}.inside"
    for axis in changed:
        name = last if axis == changed[-1] else f"{node.out}.axis{axis}"
        positions = chosen[axis]
        if positions is not None:
            x = take(node, x, axis, positions, name)
        else:
            x = _resize_product(node, x, axis, matrices[axis], order, name)
    if fill is not None:
        node.step("", "add", x, node.number("outside", fill))


_SAMPLING = ("mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "antialias",
             "exclude_outside")  # fmt: skip


def _crops(node: Node) -> bool:
    return bool(node.attribute("coordinate_transformation_mode") == "tf_crop_and_resize")


def _weight_matrix(node: Node, axis: int) -> Array:
    """Matrix [output position, input position] of weights along `axis`, zero outside of a crop."""
    given, made, rank = node.tensor(0).shape[axis], node.shape()[axis], len(node.shape())
    axes = [int(each) % rank for each in node.attribute("axes", range(rank))]
    place = axes.index(axis) if axis in axes else None
    crop = np.array([0, 1])
    if _crops(node) and place is not None:
        crop = node.constant(1)[[place, len(axes) + place]]
    scale = None if place is None or _crops(node) else _scale(node, axes, place)
    feeds: dict[str, Array] = {
        "units": np.eye(given, dtype=np.float32),
        "crop": np.insert(crop.astype(np.float32), [0, 1], [0, 1]),
        "by": np.array([given, made]) if scale is None else np.array([1, scale], np.float32),
    }
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in feeds.items()
    ]
    result = helper.make_tensor_value_info("weights", TensorProto.FLOAT, None)
    how = {name: node.attribute(name) for name in _SAMPLING}
    inputs = ["units", "crop", *(["", "by"] if scale is None else ["by"])]
    one = helper.make_node("Resize", inputs, ["weights"], **how)
    graph = helper.make_graph([one], "resize", ports, [result])
    opsets = [helper.make_opsetid("", 19)]
    try:
        session = open_session(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    except ValueError as why:
        raise NoNest(f"Resize: {why}") from why
    matrix: Array = session.run(None, feeds)[0].T
    if len(matrix) != made:
        raise NoNest(f"Resize by {scale:g} of {given} positions to {made}")
    return matrix


def _scale(node: Node, axes: list[int], place: int) -> float | None:
    """Scale of the axis at `place` in `axes`; None: that of its extents."""
    if node.has(2) and len(node.constant(2)):
        return float(node.constant(2)[place])
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    extents = node.tensor(0).shape
    wanted = [int(n) / extents[a] for n, a in zip(node.constant(3), axes, strict=True)]
    return {"not_larger": min(wanted), "not_smaller": max(wanted)}.get(policy)


def _fill(node: Node, matrices: list[Array]) -> Array | None:
    """Value of positions outside of the input, zero inside; None if there are none."""
    value = float(node.attribute("extrapolation_value", 0.0))
    if not _crops(node) or value == 0:
        return None
    columns = (np.logical_not(matrix.any(1)) for matrix in matrices)
    outside: Array = reduce(np.logical_or.outer, columns)
    return np.where(outside, value, 0).astype(np.float32) if outside.any() else None


def _single_positions(matrix: Array) -> Array | None:
    """The one input position of each output, if there is only one."""
    single = ((matrix != 0).sum(1) == 1).all() and (matrix.max(1) == 1).all()
    return matrix.argmax(1) if single else None


def _factor(positions: Array | None, given: int) -> int | None:
    """Repetitions of each input position, if equal for all."""
    if positions is None or len(positions) % given:
        return None
    factor = len(positions) // given
    same = np.array_equal(positions, np.repeat(np.arange(given), factor))
    return factor if same else None


def _turn(axis: int, given: int, made: int) -> tuple[bool, int]:
    """When an axis has its turn: the last axes, along which neighbours are slow to add up, have the
    fewest elements beside them after all that shrink and before all that grow."""
    return made > given, -axis if made > given else axis


_FEW = 8
"""Channels whose planes are as well left apart."""


def _resize_product(
    node: Node, x: Tensor, axis: int, matrix: Array, order: tuple[int, ...], name: str
) -> Tensor:
    """name[..., i, ...] = sum k: x[..., k, ...] * matrix[i, k], with its axes in `order`."""
    shape = (*x.shape[:axis], len(matrix), *x.shape[axis + 1 :])
    out = node.build.create(name, shape, node.dtype(), order)
    m = node.build.constant(f"{name}.weights", np.ascontiguousarray(matrix))
    rank = len(shape)
    dims = [Dim(f"d{a}", n) for a, n in enumerate(shape)]
    dims.append(Dim("k", x.shape[axis]))
    index: list[Affine] = [at(rank if a == axis else a) for a in range(rank)]
    operands = (Access(x.name, tuple(index)), Access(m.name, (at(axis), at(rank))))
    node.build.add(Nest(out.name, tuple(dims), rank, "mul", operands, "sum"))
    return out


TABLE: dict[str, Lowering] = {"Resize": resize}
