"""Resizing, axis by axis: repetition where possible, else a product with a constant matrix.

Each output position is a weighted sum of a few input positions, with weights that only the
attributes decide. Nearest enlargement by a whole number repeats elements; any other nearest mode
gathers positions; interpolation multiplies by the matrix of weights along the axis. Positions
outside of a crop have no weights; their constant value is added afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from compiler.lowering.movement import order_like, repeated, take
from compiler.lowering.node import Lowering, Node, NoNest
from compiler.tensor_ir.nest import Access, Affine, Array, Dim, Nest, Tensor, at
from simmodel.arch.dtype import EPSILON, is_float


def resize(node: Node) -> None:
    """Nearest, linear or cubic sampling of any subset of axes."""
    x, shape = node.tensor(0), node.shape()
    node.compose()
    mode = str(node.attribute("mode", "nearest"))
    places = {axis: _input_positions(node, axis, x.shape[axis], n) for axis, n in enumerate(shape)}
    matrices = {axis: _weight_matrix(node, mode, axis, places[axis]) for axis in places}
    fill = _fill(node, places)
    chosen = {axis: _single_positions(matrix) for axis, matrix in matrices.items()}
    factors = tuple(_factor(chosen[axis], x.shape[axis]) for axis in range(len(shape)))
    if all(factors) and fill is None:
        repeated(node, x, node.out, tuple(f or 1 for f in factors))
        return
    changed = [axis for axis in matrices if factors[axis] != 1]
    if not is_float(node.dtype()) and not all(chosen[axis] is not None for axis in changed):
        raise NoNest("Resize of integers by interpolation")
    last = node.out if fill is None else f"{node.out}.inside"
    for axis in changed:
        name = last if axis == changed[-1] else f"{node.out}.axis{axis}"
        positions = chosen[axis]
        if positions is not None:
            x = take(node, x, axis, positions, name)
        else:
            x = _resize_product(node, x, axis, matrices[axis], name)
    if fill is not None:
        node.step("", "add", x, node.number("outside", fill))


def _resized(node: Node) -> list[int]:
    """The axes that scales, sizes and crop bounds refer to."""
    rank = len(node.shape())
    axes = node.attribute("axes")
    return list(range(rank)) if axes is None else [int(axis) % rank for axis in axes]


def _scale(node: Node, axis: int, given: int, made: int) -> float:
    scales = node.constant(2) if node.has(2) else np.zeros(0)
    axes = _resized(node)
    if axis not in axes:
        return made / given
    if len(scales):
        return float(scales[axes.index(axis)])
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return made / given
    extents = node.tensor(0).shape
    wanted = [int(n) / extents[a] for n, a in zip(node.constant(3), axes, strict=True)]
    return min(wanted) if policy == "not_larger" else max(wanted)


def _crop(node: Node, axis: int) -> tuple[float, float]:
    """Crop bounds along `axis`, as shares of its extent."""
    axes = _resized(node)
    if axis not in axes:
        return 0.0, 1.0
    bounds = node.constant(1).astype(np.float64)
    place = axes.index(axis)
    return float(bounds[place]), float(bounds[len(axes) + place])


def _fill(node: Node, places: dict[int, Array]) -> Array | None:
    """Value of positions outside of the input, zero inside; None if there are none."""
    value = float(node.attribute("extrapolation_value", 0.0))
    if node.attribute("coordinate_transformation_mode") != "tf_crop_and_resize" or value == 0:
        return None
    extents = node.tensor(0).shape
    outside = np.zeros(node.shape(), np.bool_)
    for axis, positions in places.items():
        column = [1] * outside.ndim
        column[axis] = -1
        outside |= _outside_input(positions, extents[axis]).reshape(column)
    return np.where(outside, value, 0).astype(np.float32) if outside.any() else None


def _outside_input(places: Array, given: int) -> Array:
    return np.asarray((places < 0) | (places > given - 1))


def _input_positions(node: Node, axis: int, given: int, made: int) -> Array:
    """Real position in the input of each output position."""
    scale = _scale(node, axis, given, made)
    i = np.arange(made, dtype=np.float64)
    rule = node.attribute("coordinate_transformation_mode", "half_pixel")
    if rule == "align_corners":
        # Of whole pixels, as ONNX Runtime and the frameworks that export it have it.
        places = i * ((given - 1) / (made - 1) if made > 1 else 0.0)
    elif rule == "asymmetric":
        places = i / scale
    elif rule == "pytorch_half_pixel":
        places = (i + 0.5) / scale - 0.5 if made > 1 else np.zeros(1)
    elif rule == "half_pixel_symmetric":
        adjusted = given / 2 * (1 - made / (given * scale))
        places = adjusted + (i + 0.5) / scale - 0.5
    elif rule == "tf_half_pixel_for_nn":
        places = (i + 0.5) / scale
    elif rule == "tf_crop_and_resize":
        start, end = _crop(node, axis)
        steps = i / (made - 1) if made > 1 else np.full(made, 0.5)
        places = (start + steps * (end - start)) * (given - 1)
    else:
        places = (i + 0.5) / scale - 0.5
    result: Array = places
    return result


def _weight_matrix(node: Node, mode: str, axis: int, places: Array) -> Array:
    """Matrix [output position, input position]."""
    given = node.tensor(0).shape[axis]
    if mode == "nearest":
        rounding = str(node.attribute("nearest_mode", "round_prefer_floor"))
        positions = _NEAREST[rounding](places)[:, None]
        weights = np.ones(positions.shape)
    else:
        positions, weights = _interpolated(node, mode, axis, places)
    if node.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        weights[_outside_input(places, given)] = 0
    matrix = np.zeros((len(places), given))
    rows = np.arange(len(places))[:, None]
    # Outside of the input its edge goes on; several taps may fall there.
    np.add.at(matrix, (rows, np.clip(positions, 0, given - 1).astype(np.int64)), weights)
    return matrix


def _interpolated(node: Node, mode: str, axis: int, places: Array) -> tuple[Array, Array]:
    """Input positions around each output position, and their weights: the mode's kernel, as wide as
    the output's pixels if these are larger and antialiasing is asked for."""
    given, made = node.tensor(0).shape[axis], len(places)
    smooth = bool(node.attribute("antialias", 0))
    narrow = min(1.0, _scale(node, axis, given, made)) if smooth else 1.0
    reach = math.ceil((1 if mode == "linear" else 2) / narrow)
    positions = np.floor(places)[:, None] + np.arange(-reach, reach + 2)
    away = np.abs(positions - places[:, None]) * narrow
    if mode == "linear":
        weights = np.maximum(0, 1 - away)
    else:
        weights = _cubic(away, float(node.attribute("cubic_coeff_a", -0.75)))
    if node.attribute("exclude_outside", 0):
        weights = np.where((positions >= 0) & (positions < given), weights, 0)
    return positions, weights / weights.sum(1, keepdims=True)


_NEAREST: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
    "round_prefer_floor": lambda places: np.ceil(places - 0.5),  # halves go down
}


def _cubic(d: Array, a: float) -> Array:
    """Keys' kernel at distance `d`."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


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


_ROUNDINGS = 4
"""Of a position."""


def _resize_product(node: Node, x: Tensor, axis: int, matrix: Array, name: str) -> Tensor:
    """name[..., i, ...] = sum k: x[..., k, ...] * matrix[i, k]."""
    shape = (*x.shape[:axis], len(matrix), *x.shape[axis + 1 :])
    out = node.build.create(name, shape, node.dtype(), order_like(x))
    # Libraries find positions in fp32; a weight moves by up to twice as much as its position.
    uncertain = 2 * _ROUNDINGS * EPSILON["fp32"] * max(x.shape[axis], len(matrix))
    m = node.build.constant(f"{name}.weights", matrix.astype(np.float32), None, uncertain)
    rank = len(shape)
    dims = [Dim(f"d{a}", n) for a, n in enumerate(shape)]
    dims.append(Dim("k", x.shape[axis]))
    index: list[Affine] = [at(rank if a == axis else a) for a in range(rank)]
    operands = (Access(x.name, tuple(index)), Access(m.name, (at(axis), at(rank))))
    node.build.add(Nest(out.name, tuple(dims), rank, "mul", operands, "sum"))
    return out


TABLE: dict[str, Lowering] = {"Resize": resize}
