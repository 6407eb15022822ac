"""Small networks with the operators and habits of exported ones, as ONNX text.

The inputs of a network are those named in `INPUTS`; every other parameter is a constant with
random values, divided by the square root of what a product sums over.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

NETS = Path(__file__).with_name("nets")
INPUTS = ("x", "past_k", "past_v")

TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(NETS.glob("*.txt"))}
"""Name -> text of a network."""


def real_net(name: str) -> onnx.ModelProto:
    """A network of `TEXTS` with its constants; the same each time."""
    model = parser.parse_model(TEXTS[name])
    constants = [port for port in model.graph.input if port.name not in INPUTS]
    random = np.random.default_rng(len(name))
    for port in constants:
        model.graph.input.remove(port)
        model.graph.initializer.append(_constant(port, random))
    onnx.checker.check_model(model, full_check=True)
    return model


def _constant(port: onnx.ValueInfoProto, random: np.random.Generator) -> onnx.TensorProto:
    shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
    values = random.standard_normal(shape)
    if dtype == np.int8:
        return numpy_helper.from_array(
            np.rint(40 * values).clip(-127, 127).astype(dtype), port.name
        )
    summed = shape[0] if len(shape) == 2 else np.prod(shape[1:])
    size = np.sqrt(summed) if len(shape) > 1 else 4
    return numpy_helper.from_array((values / size).astype(dtype), port.name)
