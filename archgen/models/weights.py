"""Weights and activations of a network rounded to a microscaling format: `net.onnx:weights=mxfp4`.

The one idea: they are rounded as engines multiply them, so normalization behind a convolution is
folded into its weights before; what is compiled, run and checked is the network that rounds. Of
`activations=mxfp8` products read both operands in blocks, the weights too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from archgen.models.errors import ModelError
from archgen.zoo.shapes import REDUCED, attribute, weights_in_blocks
from compiler import api
from simmodel.arch.base import near
from simmodel.arch.element_types import MX_BITS, MX_BLOCK

_FORMAT = re.compile(r"(?<=[:,])(weights|activations)=([A-Za-z]\w*)(?:,|$)")


def formats_of(spec: str) -> tuple[str, dict[str, str]]:
    """`spec` of a model without the formats of its weights and activations, and these, of which
    some or none may be given. Raises ModelError where there is no such format."""
    found: dict[str, str] = {}
    while (said := _FORMAT.search(spec)) is not None and not Path(spec).is_file():
        what, kind = said.groups()
        if kind not in MX_BITS:
            guess = near(kind.lower(), MX_BITS)
            raise ModelError(f"{spec}: {what}={kind}: expected {', '.join(MX_BITS)}{guess}")
        if what in found:
            raise ModelError(f"{spec}: {what} are given twice")
        found[what] = kind
        spec = f"{spec[: said.start()]}{spec[said.end() :]}".rstrip(":,")
    return spec, found


def round_operands(proto: onnx.ModelProto, formats: Mapping[str, str]) -> None:
    """Round constant weights of products and convolutions that are whole blocks along the
    reduction, and what these are multiplied by."""
    fold_batch_norms(proto.graph)
    active = formats.get("activations", "")
    kind = formats.get("weights", active)
    for tensor, axis in weights_in_blocks(proto.graph, MX_BLOCK[kind]):
        api.set_microscaled(tensor, kind, axis)
    if active:
        _round_inputs(proto, active)


def _round_inputs(proto: onnx.ModelProto, kind: str) -> None:
    """Put a node that rounds before each product of weights that are whole blocks."""
    blocked = {t.name: t for t, _ in weights_in_blocks(proto.graph, MX_BLOCK[kind])}
    made: dict[str, onnx.NodeProto] = {}
    nodes: list[onnx.NodeProto] = []
    for node in proto.graph.node:
        weights = blocked.get(node.input[1]) if node.op_type in REDUCED else None
        if weights is not None and not attribute(node, "transA", 0):
            groups = attribute(node, "group", 1)
            channels = weights.dims[1] * groups if node.op_type == "Conv" else 0
            name = f"{node.input[0]}.{kind}{channels or ''}"
            if name not in made:
                made[name] = api.rounding(kind, node.input[0], name, channels)
                nodes.append(made[name])
            node.input[0] = name
        nodes.append(node)
    if not made:
        return
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    version = next(each.version for each in proto.opset_import if each.domain in ("", "ai.onnx"))
    proto.functions.append(api.microscaling(kind, version))
    proto.opset_import.append(helper.make_opsetid(proto.functions[-1].domain, 1))


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
