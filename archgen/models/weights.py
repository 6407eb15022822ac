"""Weights of a network rounded to a microscaling format: `net.onnx:weights=mxfp4`.

The one idea: they are rounded as engines multiply them, so normalization behind a convolution is
folded into its weights before; what is compiled, run and checked is the network of rounded weights.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from archgen.models.errors import ModelError
from archgen.zoo.shapes import attribute, weights_in_blocks
from compiler import api
from simmodel.arch.base import near
from simmodel.arch.element_types import MX_BITS

_FORMAT = re.compile(r"(?<=[:,])weights=([A-Za-z]\w*)(?:,|$)")


def weight_format(spec: str) -> tuple[str, str]:
    """`spec` of a model without the format of its weights, and that, which may be empty. Raises
    ModelError where there is no such format."""
    said = _FORMAT.search(spec)
    if said is None or Path(spec).is_file():
        return spec, ""
    if said[1] not in MX_BITS:
        guess = near(said[1].lower(), MX_BITS)
        raise ModelError(f"{spec}: weights={said[1]}: expected {', '.join(MX_BITS)}{guess}")
    return f"{spec[: said.start()]}{spec[said.end() :]}".rstrip(":,"), said[1]


def round_weights(graph: onnx.GraphProto, kind: str) -> None:
    """Round constant weights of products and convolutions that are whole blocks along the
    reduction."""
    fold_batch_norms(graph)
    for tensor, axis in weights_in_blocks(graph, 32):
        api.set_microscaled(tensor, kind, axis)


def fold_batch_norms(graph: onnx.GraphProto) -> None:
    """Put each BatchNormalization of a convolution that nobody else reads into its weights."""
    known = {tensor.name: tensor for tensor in graph.initializer}
    reads = Counter(name for node in graph.node for name in node.input)
    reads.update(port.name for port in graph.output)
    convolutions = {node.output[0]: node for node in graph.node if node.op_type == "Conv"}
    for node in [node for node in graph.node if node.op_type == "BatchNormalization"]:
        conv = convolutions.get(node.input[0])
        if conv is None or len(node.output) > 1 or reads[conv.output[0]] > 1:
            continue
        if not known.keys() >= {*conv.input[1:], *node.input[1:]} or reads[conv.input[1]] > 1:
            continue
        gain, shift, mean, variance = (api.numbers_in(known[name]) for name in node.input[1:5])
        gain = gain / np.sqrt(variance + attribute(node, "epsilon", 1e-5))
        weights, *bias = (api.numbers_in(known[name]) for name in conv.input[1:])
        shift = shift + (sum(bias) - mean) * gain
        wide = weights * gain.reshape(-1, *[1] * (weights.ndim - 1))
        names = f"{node.output[0]}.weight", f"{node.output[0]}.shift"
        for name, values in zip(names, (wide, shift), strict=True):
            made = numpy_helper.from_array(values.astype(weights.dtype), name)
            graph.initializer.append(made)
        graph.initializer.remove(known[conv.input[1]])
        conv.input[:] = [conv.input[0], *names]
        conv.output[0] = node.output[0]
        graph.node.remove(node)
