"""Quantization encodings as AIMET and QNN export them, written into the network as QDQ.

Such an export is two files: `net.onnx` in floating point, and `net.encodings` with scales of the
tensors that are quantized. The one idea: an encoding says what a QuantizeLinear and a
DequantizeLinear say, so the network gets these, under the tensor's own name, and is then like any
quantized one.

    conv -> y                   encoding of y
    conv -> y__wide -> QuantizeLinear -> y__quantized -> DequantizeLinear -> y

Three forms: a list of parts of a tensor by its name (0.6.1), a list of tensors (1.0.0), and the
fields of QuantizeLinear (2.0.0).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from archgen.models.errors import ModelError
from archgen.schema.tree import guess
from archgen.zoo.shapes import REDUCED, attribute, weights_in_blocks
from compiler import api
from compiler.api import numbers_in
from simmodel.arch.base import near
from simmodel.arch.element_types import MX_BITS, MX_BLOCK

SUFFIX = ".encodings"
_KINDS = ("int8", "uint8", "int16", "uint16", "int32")
_COLUMNS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": -1}
"""Axis of the weights' output channels, by the operator that reads them."""
_MOVING = ("Flatten", "Identity", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators whose result is quantized like what they read."""
_SHOWN = 8
"""Mistakes that are named."""


@dataclass(frozen=True)
class TensorEncoding:
    """How one tensor is quantized: value = scale * (integer - zero)."""

    kind: str
    """Type of the integers, as numpy calls it."""
    scale: NDArray[np.float32]
    """Of all of it, or one for each position along `axis`."""
    zero: NDArray[np.int64]
    axis: int | None = None
    """None: not said; only where there are several scales does it matter."""


def with_encodings(proto: onnx.ModelProto, path: Path) -> None:
    """Write the encodings of the file `path` into `proto`, a network in floating point.

    Raises ModelError with everything that is wrong with them.
    """
    encodings, wrong = _read(path)
    graph = proto.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    ports = [port.name for port in graph.input if port.name not in constants]
    known = {*constants, *ports, *(name for node in graph.node for name in node.output)}
    wrong += [
        f"tensor {name!r}: the network has none of that name{guess(name, known)}"
        for name in encodings
        if name not in known
    ]
    encodings |= _biases(graph, encodings, constants)
    writer = _Writer(proto, encodings)
    for tensor in (constants[name] for name in encodings if name in constants):
        wrong += writer.quantize_constant(tensor)
    if wrong:
        more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
        raise ModelError(*(f"{path}: {mistake}" for mistake in (*wrong[:_SHOWN], *more)))
    writer.quantize_values(ports)


def _biases(
    graph: onnx.GraphProto, encodings: Mapping[str, TensorEncoding], constants: Collection[str]
) -> dict[str, TensorEncoding]:
    """Encodings of biases in units of the accumulator, as a runtime keeps those of which nothing is
    said, or that they have 32 bits."""
    makers = {name: node for node in graph.node for name in node.output}
    found: dict[str, TensorEncoding] = {}
    for node in graph.node:
        data, weights, bias = [*map(str, node.input), "", "", ""][:3]
        if node.op_type not in _COLUMNS or bias not in constants or weights not in encodings:
            continue
        while data not in encodings and data in makers and makers[data].op_type in _MOVING:
            data = makers[data].input[0]
        if data in encodings and (bias not in encodings or encodings[bias].kind == "int32"):
            scale = encodings[data].scale * encodings[weights].scale
            found[bias] = TensorEncoding("int32", scale, np.zeros(scale.shape, np.int64), 0)
    return found


class _Writer:
    """Writes QuantizeLinear and DequantizeLinear into one network."""

    def __init__(self, proto: onnx.ModelProto, encodings: Mapping[str, TensorEncoding]) -> None:
        self.graph, self.encodings = proto.graph, encodings
        self.domain, own = "", {each.domain: each.version for each in proto.opset_import}
        if own.get("", 0) < 21 and any(e.kind.endswith("16") for e in encodings.values()):
            self.domain = "com.microsoft"  # ONNX itself has 16 bits from operator set 21 on
            if self.domain not in own:
                proto.opset_import.append(helper.make_opsetid(self.domain, 1))
        self.first: list[onnx.NodeProto] = []
        """Nodes that go before all others."""

    def quantize_constant(self, tensor: onnx.TensorProto) -> list[str]:
        """Keep a constant as integers; gives what hinders that."""
        name, encoding = tensor.name, self.encodings[tensor.name]
        values = numbers_in(tensor)
        axis = self._columns(name, values.ndim) if encoding.axis is None else encoding.axis
        axis %= max(1, values.ndim)
        count = encoding.scale.size
        if count not in (1, *values.shape[axis : axis + 1]):
            shape = list(values.shape)
            return [f"tensor {name!r}: its encoding has {count} scales, its shape is {shape}"]
        shape = [-1 if d == axis and count > 1 else 1 for d in range(values.ndim)]
        limits = np.iinfo(encoding.kind)
        integers = np.rint(values / encoding.scale.reshape(shape)) + encoding.zero.reshape(shape)
        integers = np.clip(integers, limits.min, limits.max).astype(encoding.kind)
        self.first.append(self._node("DequantizeLinear", f"{name}__quantized", name, name, axis))
        tensor.CopyFrom(numpy_helper.from_array(integers, f"{name}__quantized"))
        for port in [port for port in self.graph.input if port.name == name]:
            self.graph.input.remove(port)
        return []

    def quantize_values(self, ports: Sequence[str]) -> None:
        """Let all readers of `ports` read them quantized, and quantize what nodes compute, right
        behind them."""
        # Nothing rounds to 32 bits.
        rounded = {name for name, each in self.encodings.items() if each.kind != "int32"}
        for name in (name for name in ports if name in rounded):
            for node in self.graph.node:
                _rename(node.input, name, f"{name}__rounded")
            self.first += self._pair(name, name, f"{name}__rounded")
        nodes = list(self.first)
        for node in list(self.graph.node):
            nodes.append(node)
            for name in [name for name in node.output if name in rounded]:
                _rename(node.output, name, f"{name}__wide")
                nodes += self._pair(name, f"{name}__wide", name)
        del self.graph.node[:]
        self.graph.node.extend(nodes)

    def _pair(self, name: str, source: str, target: str) -> list[onnx.NodeProto]:
        between = f"{name}__quantized"
        return [
            self._node("QuantizeLinear", source, between, name),
            self._node("DequantizeLinear", between, target, name),
        ]

    def _node(
        self, kind: str, source: str, target: str, name: str, axis: int = 0
    ) -> onnx.NodeProto:
        encoding = self.encodings[name]
        parts = {"scale": encoding.scale, "zero": encoding.zero.astype(encoding.kind)}
        known = {tensor.name for tensor in self.graph.initializer}
        for part, values in parts.items():
            if f"{name}__{part}" not in known:
                made = values if values.size > 1 else values.reshape(())
                self.graph.initializer.append(numpy_helper.from_array(made, f"{name}__{part}"))
        several: dict[str, Any] = {"axis": axis} if encoding.scale.size > 1 else {}
        inputs = [source, *(f"{name}__{part}" for part in parts)]
        label = f"{name}__{kind}"
        return helper.make_node(kind, inputs, [target], label, domain=self.domain, **several)

    def _columns(self, name: str, rank: int) -> int:
        """The axis of a constant's output channels."""
        node = next((node for node in self.graph.node if name in node.input), None)
        turned = node is None or any(a.name == "transB" and a.i for a in node.attribute)
        return 0 if node is None or turned or rank < 2 else _COLUMNS.get(node.op_type, 0) % rank


def _rename(names: Any, old: str, new: str) -> None:
    for place, name in enumerate(names):
        if name == old:
            names[place] = new


def _read(path: Path) -> tuple[dict[str, TensorEncoding], list[str]]:
    """Encodings by tensor, of those that are integers, and mistakes."""
    try:
        content = json.loads(path.read_text())
        known = [
            n for n in ("activation_encodings", "param_encodings", "encodings") if n in content
        ]
    except (OSError, ValueError, TypeError) as mistake:
        raise ModelError(f"{path} cannot be read: {mistake}") from None
    found: dict[str, TensorEncoding] = {}
    wrong = [] if known else ["has no 'activation_encodings', 'param_encodings' or 'encodings'"]
    for group in (content[name] for name in known):
        listed = [] if isinstance(group, dict) else [(str(e.get("name", "")), [e]) for e in group]
        for name, parts in group.items() if isinstance(group, dict) else listed:
            try:
                encoding = _encoding(parts)
            except (KeyError, TypeError, ValueError, IndexError) as mistake:
                why = f"{mistake} is missing" if isinstance(mistake, KeyError) else mistake
                wrong.append(f"tensor {name!r}: {why}")
                continue
            if encoding is not None:
                found[name] = encoding
    return found, wrong


def _encoding(parts: Sequence[Mapping[str, Any]]) -> TensorEncoding | None:
    """One encoding; None where the tensor stays in floating point."""
    first = parts[0]
    by_block = first.get("enc_type", "PER_TENSOR") not in ("PER_TENSOR", "PER_CHANNEL")
    if by_block or first.get("block_size"):
        raise ValueError("scales by blocks are not read; export it by tensor or by channel")
    if "y_scale" in first:
        kind, scale = str(first["output_dtype"]), np.atleast_1d(first["y_scale"])
        zero = np.broadcast_to(np.asarray(first.get("y_zero_point", 0), np.int64), scale.shape)
    elif str(first.get("dtype", "int")).lower() != "int":
        return None
    else:
        bits = int(first["bw"] if "bw" in first else first["bitwidth"])
        scale = np.concatenate([np.atleast_1d(part["scale"]) for part in parts])
        zero = -np.concatenate([np.atleast_1d(part["offset"]) for part in parts]).astype(np.int64)
        # Integers count from the offset on: around the middle, what is meant is signed.
        middle = 1 << (bits - 1)
        signed = bits == 32 or np.isin(zero, (middle, middle - 1)).all()
        kind, zero = (f"int{bits}", 0 * zero) if signed else (f"uint{bits}", zero)
    if kind not in _KINDS:
        raise ValueError(f"{kind}: expected integers of 8, 16 or 32 bits")
    if scale.ndim != 1 or not (scale > 0).all():
        raise ValueError("scales are numbers above 0, one or a list")
    return TensorEncoding(kind, scale.astype(np.float32), zero, first.get("axis"))


# Weights and activations rounded to a microscaling format: `net.onnx:weights=mxfp4`. They are
# rounded as engines multiply them, so normalization behind a convolution is folded into its weights
# before. Of `activations=mxfp8` products read both operands in blocks, the weights too.

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
