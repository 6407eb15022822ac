"""Damage to ONNX files: to their bytes, and to what their fields say.

The one idea: a mutation is a function that changes a model in place, or answers other bytes; most
of what real exporters, editors and attackers do wrong is one or two of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Change = Callable[[random.Random, onnx.ModelProto], None]
ODD_NAMES = ("", " ", "x/../y", "\n", "nämé", "a" * 5000, "c0", "x0", "%s{}", "../../etc/passwd")
ODD_INTS = (0, -1, -7, 1, 3, 1 << 31, -(1 << 63), (1 << 63) - 1, 1 << 40)
ODD_DIMS = (0, -1, 1 << 40, (1 << 63) - 1, 3, 65537)
OPERATORS = (
    "If", "Loop", "Scan", "NonZero", "NoSuchThing", "", "Conv", "Split", "StringNormalizer",
    "SequenceConstruct", "RandomNormal", "Optional", "Attention", "Loop\x00", "Resize", "Reshape",
    "NonMaxSuppression", "LSTM", "QLinearConv", "Constant", "Identity",
)  # fmt: skip
PLACES = (
    "missing.bin", "/etc/passwd", "../../../../etc/hostname", "a" * 5000, "", ".", "model.onnx",
    "a\x00b", "/dev/zero", "/",
)  # fmt: skip
DOMAINS = ("com.microsoft", "ai.onnx.ml", "my.domain", "ai.onnx", "ai.onnx.training", "\n")


def damaged(rng: random.Random, model: onnx.ModelProto) -> bytes:
    """A damaged copy of a model, as a file has it."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    if rng.random() < 0.75:
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            try:
                rng.choice(CHANGES)(rng, made)
            except (IndexError, ValueError):
                continue  # there is nothing of that kind to damage
    data = made.SerializeToString()
    return rng.choice(BYTES)(rng, data) if rng.random() < 0.3 else data


# Bytes.


def _flipped(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 3, 20])):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def _truncated(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _repeated(rng: random.Random, data: bytes) -> bytes:
    at, length = rng.randrange(len(data)), rng.choice([1, 8, 100, len(data)])
    return data[:at] + data[at : at + length] * 2 + data[at + length :]


def _not_text(rng: random.Random, data: bytes) -> bytes:
    """Bytes that are no UTF-8 in place of a name, of the same length."""
    names = [b"Relu", b"Conv", b"MatMul", b"Add", b"kernel_shape", b"axis", b"x0", b"t0", b"c0"]
    there = [name for name in names if name in data]
    name = rng.choice(there or [data[:1]])
    return data.replace(
        name, b"\xff\xfe\x80\xc0"[: len(name)].ljust(len(name), b"\xff"), rng.choice([1, -1])
    )


BYTES = (_flipped, _truncated, _repeated, _not_text)


# Fields.


def _node(rng: random.Random, model: onnx.ModelProto) -> onnx.NodeProto:
    return rng.choice(list(model.graph.node))


def _other_operator(rng: random.Random, model: onnx.ModelProto) -> None:
    _node(rng, model).op_type = rng.choice(OPERATORS)


def _other_domain(rng: random.Random, model: onnx.ModelProto) -> None:
    domain = rng.choice(DOMAINS)
    _node(rng, model).domain = domain
    if rng.random() < 0.5:
        model.opset_import.append(helper.make_opsetid(domain, rng.choice([1, 0, 99])))


def _less_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    node = rng.choice([n for n in model.graph.node if n.attribute])
    del node.attribute[rng.randrange(len(node.attribute))]


def _odd_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    node = rng.choice([n for n in model.graph.node if n.attribute])
    attribute = rng.choice(list(node.attribute))
    kind = rng.randrange(5)
    if kind == 0:
        attribute.i = rng.choice(ODD_INTS)
        attribute.ints[:] = [rng.choice(ODD_INTS) for _ in attribute.ints]
    elif kind == 1:
        attribute.type = rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 8])
    elif kind == 2:
        del attribute.ints[:]
    elif kind == 3:
        attribute.ints.append(rng.choice(ODD_INTS))
    else:
        node.attribute.append(attribute)


def _new_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    names = [
        "axis",
        "kernel_shape",
        "pads",
        "strides",
        "group",
        "perm",
        "to",
        "auto_pad",
        "nonsense",
    ]
    value = rng.choice([rng.choice(ODD_INTS), [1, 1], "SAME_UPPER", 1e38, [float("nan")], b"\xff"])
    _node(rng, model).attribute.append(helper.make_attribute(rng.choice(names), value))


def _rewired(rng: random.Random, model: onnx.ModelProto) -> None:
    """An input that is dangling, missing, of a later node (a cycle), or another's."""
    node = rng.choice([n for n in model.graph.node if n.input])
    others = [name for other in model.graph.node for name in (*other.output, *other.input)]
    node.input[rng.randrange(len(node.input))] = rng.choice(["nowhere", "", *others, *node.output])


def _arity(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    kind = rng.randrange(4)
    if kind == 0 and node.input:
        del node.input[-1]
    elif kind == 1:
        node.input.extend(node.input)
    elif kind == 2:
        node.output.append(rng.choice(["extra", node.output[0]]))
    else:
        del node.output[:]


def _renamed(rng: random.Random, model: onnx.ModelProto) -> None:
    """A value that has an odd name wherever it stands, or in one place only."""
    graph, new = model.graph, rng.choice(ODD_NAMES)
    names = [n for node in graph.node for n in (*node.input, *node.output) if n]
    old, everywhere = rng.choice(names), rng.random() < 0.7
    for node in graph.node:
        for field in (node.input, node.output):
            for at, name in enumerate(field):
                if name == old and (everywhere or rng.random() < 0.3):
                    field[at] = new
    for named in (*graph.input, *graph.output, *graph.initializer):
        if named.name == old and everywhere:
            named.name = new


def _same_names(rng: random.Random, model: onnx.ModelProto) -> None:
    kind = rng.randrange(3)
    for node in model.graph.node:
        if kind == 0:
            node.name = "same"
        elif kind == 1:
            node.name = rng.choice(ODD_NAMES)
        elif node.output:
            node.output[0] = model.graph.node[0].output[0]


def _shuffled(rng: random.Random, model: onnx.ModelProto) -> None:
    nodes = list(model.graph.node)
    rng.shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _dropped(rng: random.Random, model: onnx.ModelProto) -> None:
    graph = model.graph
    field = rng.choice([graph.node, graph.input, graph.output, graph.initializer])
    if rng.random() < 0.2:
        del field[:]
    else:
        del field[rng.randrange(len(field))]


def _doubled(rng: random.Random, model: onnx.ModelProto) -> None:
    graph = model.graph
    field = rng.choice([graph.node, graph.input, graph.output, graph.initializer])
    field.append(rng.choice(list(field)))


def _odd_port(rng: random.Random, model: onnx.ModelProto) -> None:
    """Type or shape of an input or output: unknown, huge, negative, of another rank."""
    value = rng.choice([*model.graph.input, *model.graph.output])
    kind = value.type.tensor_type
    choice = rng.randrange(7)
    if choice == 0:
        kind.elem_type = rng.choice([0, 2, 6, 7, 8, 9, 10, 11, 14, 16, 17, 22, 99])
    elif choice == 1:
        kind.ClearField("shape")
    elif choice == 2:
        rng.choice(list(kind.shape.dim)).dim_value = rng.choice(ODD_DIMS)
    elif choice == 3:
        rng.choice(list(kind.shape.dim)).dim_param = rng.choice(["N", "", "?", "a b", "N*2"])
    elif choice == 4:
        kind.shape.dim.add().dim_value = 2
    elif choice == 5:
        del kind.shape.dim[-1]
    else:
        value.ClearField("type")


def _odd_data(rng: random.Random, model: onnx.ModelProto) -> None:
    """A constant whose fields contradict each other."""
    tensor = rng.choice(list(model.graph.initializer))
    choice = rng.randrange(6)
    if choice == 0:
        tensor.dims.append(rng.choice(ODD_DIMS))
    elif choice == 1:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(ODD_DIMS)
    elif choice == 2:
        tensor.data_type = rng.choice([0, 1, 2, 3, 6, 7, 8, 9, 10, 16, 22, 99])
    elif choice == 3:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data))]
    elif choice == 4:
        del tensor.dims[:]
    else:
        tensor.float_data.extend([1.0, 2.0])


def _odd_values(rng: random.Random, model: onnx.ModelProto) -> None:
    """A constant of absurd values: shapes, axes, bounds, weights."""
    tensor = rng.choice(list(model.graph.initializer))
    values = numpy_helper.to_array(tensor).copy()
    if values.dtype.kind == "f":
        odd: list[float] = [float("nan"), float("inf"), -float("inf"), 3e38, 1e-45, 0.0]
        values.flat[rng.randrange(values.size)] = rng.choice(odd)
        if rng.random() < 0.3:
            values[...] = rng.choice(odd)
    else:
        room = np.iinfo(values.dtype) if values.dtype.kind in "iu" else None
        odd_int = rng.choice(ODD_INTS)
        fits = odd_int if room is None else max(room.min, min(room.max, odd_int))
        values.flat[rng.randrange(values.size)] = fits
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _outside(rng: random.Random, model: onnx.ModelProto) -> None:
    """A constant whose data is said to be in another file."""
    tensor = rng.choice(list(model.graph.initializer))
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=rng.choice(PLACES))
    if rng.random() < 0.5:
        tensor.external_data.add(key="offset", value=rng.choice(["-1", "x", "99999999999999", "0"]))
        tensor.external_data.add(key="length", value=rng.choice(["-1", "x", "99999999999999", "4"]))
    if rng.random() < 0.5:
        tensor.ClearField("raw_data")


def _versions(rng: random.Random, model: onnx.ModelProto) -> None:
    choice = rng.randrange(5)
    if choice == 0:
        model.opset_import[0].version = rng.choice([0, -1, 1, 6, 10, 12, 999, 1 << 40])
    elif choice == 1:
        del model.opset_import[:]
    elif choice == 2:
        model.opset_import.append(helper.make_opsetid("", rng.choice([1, 7, 21, 22])))
    elif choice == 3:
        model.ir_version = rng.choice([0, -1, 1, 3, 99, 1 << 40])
    else:
        model.opset_import[0].domain = rng.choice(DOMAINS)


def _function(rng: random.Random, model: onnx.ModelProto) -> None:
    """A function of the model's own: empty, foreign, or calling itself."""
    body = [
        helper.make_node(
            rng.choice(["Relu", "Mine", "Nothing"]), ["a"], ["b"], domain=rng.choice(["", "own"])
        )
    ]
    made = helper.make_function(
        "own", "Mine", ["a"], ["b"], body if rng.random() < 0.8 else [],
        [helper.make_opsetid("", rng.choice([21, 7])), helper.make_opsetid("own", 1)],
    )  # fmt: skip
    model.functions.append(made)
    model.opset_import.append(helper.make_opsetid("own", 1))
    node = _node(rng, model)
    node.op_type, node.domain = "Mine", "own"
    del node.input[1:]
    del node.attribute[:]


def _endless(rng: random.Random, model: onnx.ModelProto) -> None:
    """A loop in place of an operator: without end, without a body, or a plain one."""
    node = rng.choice([n for n in model.graph.node if n.input])
    trips = rng.choice([1, 3, (1 << 63) - 1])
    model.graph.initializer.extend([
        numpy_helper.from_array(np.array(trips), "trips"),
        numpy_helper.from_array(np.array(True), "on"),
    ])  # fmt: skip
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_"]), helper.make_node("Relu", ["v"], ["v_"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("go_", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v_", TensorProto.FLOAT, None)],
    )  # fmt: skip
    node.op_type, node.input[:] = "Loop", ["trips", "on", node.input[0]]
    del node.attribute[:]
    if rng.random() < 0.8:
        node.attribute.append(helper.make_attribute("body", body))


CHANGES: tuple[Change, ...] = (
    _other_operator, _other_operator, _other_domain, _less_attribute, _odd_attribute,
    _odd_attribute, _new_attribute, _rewired, _rewired, _arity, _renamed, _same_names, _shuffled,
    _dropped, _doubled, _odd_port, _odd_port, _odd_data, _odd_data, _odd_values, _odd_values,
    _outside, _versions, _function, _endless,
)  # fmt: skip
