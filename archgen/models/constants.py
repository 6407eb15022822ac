"""Inputs of an ONNX file that are given a value: `net.onnx:scale=0.25,sizes=[2,3]`.

The one idea: what depends on the number of an input has no shape before that is known; such an
input becomes a constant of the network, and its value part of the network's name and of every key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from archgen.models.errors import ModelError
from archgen.schema.tree import guess

_END = ".onnx"
_COMMA = re.compile(r",(?![^\[]*\])")
"""One that is in no list."""


def with_values(spec: str, values: Iterable[str]) -> str:
    """`spec` of a model with more `values`, each `NAME=VALUE`."""
    text = ",".join(values)
    if not text:
        return spec
    path, given = file_and_values(spec)
    return f"{spec},{text}" if given or (path == spec and ":" in spec) else f"{spec}:{text}"


def file_and_values(spec: str) -> tuple[str, str]:
    """The path in the `spec` of a file, and the values of inputs behind it, which may be none."""
    path, end, text = spec.rpartition(f"{_END}:")
    return (f"{path}{_END}", text) if end and not Path(spec).is_file() else (spec, "")


def set_values(proto: onnx.ModelProto, text: str, label: str) -> None:
    """Make constants of the inputs of `proto` to which `text` gives values. Raises ModelError with
    everything that is wrong with them."""
    if not text:
        return
    held = {tensor.name for tensor in proto.graph.initializer}
    ports = {port.name: port for port in proto.graph.input if port.name not in held}
    mistakes: list[str] = []
    made: dict[str, NDArray[Any]] = {}
    for part in filter(None, _COMMA.split(text)):
        name, _, value = part.rpartition("=")
        try:
            if name in made:
                raise ValueError("is given twice")
            if name not in ports:
                known = f"; there are {', '.join(ports) or 'none'}"
                near = guess(name, [*ports, "weights"])
                raise ValueError(f"no input is called so{near or known}")
            made[name] = _parse_tensor(value, ports[name].type.tensor_type)
        except ValueError as wrong:
            mistakes.append(f"{label}: value {part!r}: {wrong}")
    if mistakes:
        raise ModelError(*mistakes)
    for name in made:
        proto.graph.input.remove(ports[name])
    proto.graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in made.items())


def _parse_tensor(text: str, kind: onnx.TypeProto.Tensor) -> NDArray[Any]:
    """The tensor of type `kind` that `text` says: a number for all of it, or lists of numbers."""
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    shape = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    shown = f"{dtype}[{', '.join('?' if n is None else str(n) for n in shape)}]"
    try:
        given = np.asarray(json.loads(text))
    except ValueError:
        raise ValueError("expected NAME=VALUE: a number, true, false or lists of them") from None
    kinds = {"b": "b", "i": "i", "u": "i"}.get(dtype.kind, "fi")
    made = given.astype(dtype) if given.dtype.kind in kinds else None
    if made is None or (dtype.kind in "iu" and (made != given).any()):
        raise ValueError(f"expected {shown}, got {text}")
    if made.ndim == 0 and None not in shape:
        return np.full([n or 0 for n in shape], made, dtype)
    fits = all(n in (None, size) for n, size in zip(shape, made.shape, strict=False))
    if made.ndim != len(shape) or not fits:
        raise ValueError(f"expected {shown}, got {list(made.shape) or 'one number'}")
    return made
