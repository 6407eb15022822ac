"""Operators that graph passes make of others: as nests, what ONNX Runtime says they compute."""

from __future__ import annotations

import numpy as np
import pytest
from one_node import Case, case, check, ints, model_of, real

POSITIONS = [
    *(case(op, (3, 4, 5), axis=axis, keepdims=kept, select_last_index=last)
      for op in ("ArgMax", "ArgMin") for axis, kept, last in ((0, 1, 0), (-1, 0, 1))),
    case("ArgMax", (3, 4), axis=1, dtype="i4"),
    *(case("Hardmax", (3, 4, 5), axis=axis) for axis in (-1, 0)),
    *(case("OneHot", (3, 4), np.int64(6), np.array([2, 5], "f4"), axis=axis, dtype="i8")
      for axis in (0, 1, -1)),
    case("OneHot", (90,), np.array([7], "f4"), (2,)),
    *(case(op, (3, 11), np.array(axis), reverse=back, exclusive=apart)
      for op in ("CumSum",) for axis in (0, -1) for back in (0, 1) for apart in (0, 1)),
    case("CumSum", (4, 1), np.array(1), exclusive=1),
    case("EyeLike", (4, 5), k=-1),
]  # fmt: skip
WINDOWS = [
    *(case("ConvTranspose", (1, 2, 4, 5), real(2, 3, 3, 2), real(3), strides=strides,
           dilations=dilations, pads=[1, 0, 2, 1])
      for strides, dilations in (([1, 1], [2, 3]), ([2, 3], [3, 2]), ([4, 2], [2, 2]))),
    case("ConvTranspose", (2, 4, 3, 2, 3), real(4, 3, 3, 2, 2), real(6), group=2,
         strides=[2, 1, 2], pads=[1, 0, 0, 2, 1, 0], output_padding=[1, 0, 1]),
    case("ConvTranspose", (1, 2, 4, 3, 3), real(2, 3, 2, 1, 2), dilations=[3, 1, 2]),
    case("Conv", (2, 3, 5, 6, 4), real(4, 3, 3, 2, 3), real(4), pads=[1, 0, 1, 2, 1, 0],
         strides=[2, 1, 1]),
    case("Conv", (1, 4, 7, 3, 3), real(6, 2, 3, 1, 2), group=2, dilations=[2, 1, 1]),
    case("Conv", (1, 4, 4, 3, 3), real(4, 1, 2, 3, 3), group=4),
    case("Conv", (1, 4, 4, 3, 3), real(2, 4, 1, 1, 1)),
    case("MaxPool", (2, 3, 5, 7, 6), kernel_shape=[2, 3, 2], strides=[2, 2, 1],
         pads=[1, 0, 1, 0, 1, 0]),
    case("MaxPool", (1, 2, 6, 5, 6), kernel_shape=[2, 2, 2], dilations=[2, 1, 3], ceil_mode=1),
    *(case("AveragePool", (2, 3, 5, 7, 6), kernel_shape=[3, 3, 2], strides=[2, 2, 3],
           pads=[1, 1, 0, 1, 0, 1], ceil_mode=ceil, count_include_pad=whole)
      for ceil in (0, 1) for whole in (0, 1)),
    *(case("LpPool", (1, 3, 7, 8), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], p=p,
           opset=18)
      for p in (1, 2, 3)),
    case("LpPool", (1, 2, 9), kernel_shape=[3], dilations=[2], opset=18),
    case("LpPool", (1, 2, 4, 5, 3), kernel_shape=[2, 3, 2], opset=18),
]  # fmt: skip
SCATTERS = [
    *(case("TopK", (3, 9), ints(count), outputs=2, axis=axis, largest=largest)
      for count, axis, largest in ((3, -1, 1), (1, 0, 0), (3, 0, 1))),
    case("TopK", (4, 5), ints(5), outputs=2, dtype="i4"),
    *(case("ScatterElements", (3, 5), np.array([[0, -1, 2], [1, 4, 3]]), (2, 3), axis=1,
           reduction=how)
      for how in ("none", "add", "mul", "max", "min")),
    *(case("ScatterND", (3, 2, 5), np.array([[0, 1], [2, 0], [-1, -1]]), (3, 5), reduction=how)
      for how in ("none", "add", "mul", "max", "min")),
    case("GatherND", (3, 2, 5), np.array([[[0, 1]], [[-1, 0]]])),
    case("GatherND", (3, 2, 5), np.array([[0], [1], [1]]), batch_dims=1),
    case("GatherElements", (3, 5), np.array([[0, -1, 2], [1, 4, 3]]), axis=1),
    case("Hardmax", (2, 3, 4), opset=11),
]  # fmt: skip


@pytest.mark.parametrize("node", [*POSITIONS, *WINDOWS, *SCATTERS], ids=str)
def test_operator(node: Case) -> None:
    check(*model_of(node))
