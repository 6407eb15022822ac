"""Resizing, axis by axis: repetition where it is one, else a product with a constant matrix.

Each output position is a weighted sum of a few input positions, with weights that only the
attributes decide. Whole-number nearest enlargement repeats elements; any other nearest choice
takes positions; interpolation multiplies by the matrix of weights along the axis.
"""

from __future__ import annotations

import numpy as np

from compiler.nest.ir import Access, Affine, Array, Dim, Nest, Tensor, at
from compiler.ops.movement import order_like, repeated, take
from compiler.ops.node import Lowering, Node, NoNest
from simmodel.dtype import EPSILON, is_float


def resize(node: Node) -> None:
    """Nearest, linear or cubic sampling of any subset of axes."""
    _check(node)
    x, shape = node.tensor(0), node.shape()
    node.build.composite = node.build.composite or node.out
    mode = str(node.attribute("mode", "nearest"))
    matrices = {}
    for axis, extent in enumerate(shape):
        places = _places(node, axis, x.shape[axis], extent)
        matrices[axis] = _weights(node, mode, places, x.shape[axis])
    chosen = {axis: _chosen(matrix) for axis, matrix in matrices.items()}
    factors = tuple(_factor(chosen[axis], x.shape[axis]) for axis in range(len(shape)))
    if all(factors):
        repeated(node, x, node.out, tuple(f or 1 for f in factors))
        return
    if not is_float(node.dtype()) and mode != "nearest":
        raise NoNest("Resize of integers by interpolation")
    changed = [axis for axis in matrices if factors[axis] != 1]
    for axis in changed:
        name = node.out if axis == changed[-1] else f"{node.out}.axis{axis}"
        positions = chosen[axis]
        if positions is not None:
            x = take(node, x, axis, positions, name)
        else:
            x = _product(node, x, axis, matrices[axis], name)


def _check(node: Node) -> None:
    refused = {
        "antialias": (0,),
        "exclude_outside": (0,),
        "keep_aspect_ratio_policy": (None, "stretch"),
    }
    for name, allowed in refused.items():
        if node.attribute(name, allowed[0]) not in allowed:
            raise NoNest(f"Resize with {name}={node.attribute(name)}")
    if node.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise NoNest("Resize of a crop")


def _scale(node: Node, axis: int, given: int, made: int) -> float:
    scales = node.constant(2) if node.has(2) else np.zeros(0)
    axes = node.attribute("axes")
    listed = list(range(len(scales))) if axes is None else [a % len(node.shape()) for a in axes]
    if len(scales) and axis in listed:
        return float(scales[listed.index(axis)])
    return made / given


def _places(node: Node, axis: int, given: int, made: int) -> Array:
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
        places = (i + 0.5) / scale - 0.5 if given * scale > 1 else np.full(made, -0.5)
    elif rule == "half_pixel_symmetric":
        adjusted = given / 2 * (1 - made / (given * scale))
        places = adjusted + (i + 0.5) / scale - 0.5
    elif rule == "tf_half_pixel_for_nn":
        places = (i + 0.5) / scale
    else:
        places = (i + 0.5) / scale - 0.5
    result: Array = places
    return result


def _weights(node: Node, mode: str, places: Array, given: int) -> Array:
    """Matrix [output position, input position]."""
    if mode == "nearest":
        rounding = str(node.attribute("nearest_mode", "round_prefer_floor"))
        taps = [(_nearest(places, rounding), np.ones(len(places)))]
    else:
        floor = np.floor(places)
        t = places - floor
        if mode == "linear":
            taps = [(floor, 1 - t), (floor + 1, t)]
        else:
            a = float(node.attribute("cubic_coeff_a", -0.75))
            taps = [(floor + k, _cubic(np.abs(t - k), a)) for k in (-1, 0, 1, 2)]
    matrix = np.zeros((len(places), given))
    rows = np.arange(len(places))
    for position, weight in taps:
        # Outside of the input its edge goes on; several taps may fall there.
        np.add.at(matrix, (rows, np.clip(position, 0, given - 1).astype(np.int64)), weight)
    return matrix


def _nearest(places: Array, rounding: str) -> Array:
    if rounding == "floor":
        return np.floor(places)
    if rounding == "ceil":
        return np.ceil(places)
    if rounding == "round_prefer_ceil":
        return np.floor(places + 0.5)
    return np.ceil(places - 0.5)  # round_prefer_floor: halves go down


def _cubic(d: Array, a: float) -> Array:
    """Keys' kernel at distance `d`."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _chosen(matrix: Array) -> Array | None:
    """The one input position of each output, where there is only one."""
    single = ((matrix != 0).sum(1) == 1).all() and (matrix.max(1) == 1).all()
    return matrix.argmax(1) if single else None


def _factor(positions: Array | None, given: int) -> int | None:
    """How often each input position is repeated, where that is the same for all."""
    if positions is None or len(positions) % given:
        return None
    factor = len(positions) // given
    same = np.array_equal(positions, np.repeat(np.arange(given), factor))
    return factor if same else None


_ROUNDINGS = 4
"""Of a position."""


def _product(node: Node, x: Tensor, axis: int, matrix: Array, name: str) -> Tensor:
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
