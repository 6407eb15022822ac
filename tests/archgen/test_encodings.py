"""Quantization encodings beside a network in floating point (AIMET, QNN)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import archgen
from archgen.models.load import ModelError, open_model

NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1,3,9,9] x) => (float[1,5] z) {
  a = Conv <pads=[1,1,1,1]> (x, w, b)
  r = Relu(a)
  p = MaxPool <kernel_shape=[2,2], strides=[2,2]> (r)
  f = Flatten(p)
  z = Gemm <transB=1> (f, v, c)
}"""
ACTIVATIONS = {"x": (4 / 128, -128), "r": (3 / 255, 0), "z": (6 / 255, -130)}


def network(folder: Path) -> dict[str, list[float]]:
    """Writes net.onnx; the scales of its weights."""
    rng, proto = np.random.default_rng(0), parser.parse_model(NET)
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "v": (5, 128), "c": (5,)}
    values = {n: rng.normal(0, 0.3, shape).astype(np.float32) for n, shape in shapes.items()}
    proto.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in values.items())
    onnx.save(proto, folder / "net.onnx")
    return {"w": [float(np.abs(k).max()) / 127 for k in values["w"]], "v": [0.01]}


def forms(weights: dict[str, list[float]]) -> list[dict[str, Any]]:
    """The same encodings as each version writes them."""

    def part(scale: float, offset: int) -> dict[str, Any]:
        return {"bitwidth": 8, "dtype": "int", "offset": offset, "scale": scale}

    def listed(name: str, scale: list[float], offset: int) -> dict[str, Any]:
        kind = "PER_CHANNEL" if len(scale) > 1 else "PER_TENSOR"
        offsets = [offset] * len(scale)
        return {"name": name, "dtype": "INT", "enc_type": kind, "bw": 8, "scale": scale,
                "offset": offsets}  # fmt: skip

    def fields(name: str, scale: Any, offset: int) -> dict[str, Any]:
        zero = {} if offset == -128 else {"y_zero_point": -offset}
        kind = {"output_dtype": "uint8" if zero else "int8"} | zero
        return {"name": name, "y_scale": scale, "axis": 0, **kind}

    return [
        {
            "activation_encodings": {n: [part(*own)] for n, own in ACTIVATIONS.items()},
            "param_encodings": {n: [part(s, -128) for s in own] for n, own in weights.items()},
        },
        {
            "version": "1.0.0",
            "activation_encodings": [listed(n, [s], o) for n, (s, o) in ACTIVATIONS.items()],
            "param_encodings": [listed(n, own, -128) for n, own in weights.items()],
        },
        {
            "version": "2.0.0",
            "encodings": [
                *(fields(n, s, o) for n, (s, o) in ACTIVATIONS.items()),
                *(fields(n, own, -128) for n, own in weights.items()),
            ],
        },
    ]


def test_encodings_of_every_version_make_one_network_that_runs_in_integers(tmp_path: Path) -> None:
    path, keys = tmp_path / "net.encodings", set()
    for content in forms(network(tmp_path)):
        path.write_text(json.dumps(content))
        source = open_model(path)
        keys.add(source.content_key)
    assert len(keys) == 1
    kinds = {t.name: t.data_type for t in source.proto.graph.initializer}
    assert kinds["w__quantized"] == onnx.TensorProto.INT8
    assert kinds["b__quantized"] == kinds["c__quantized"] == onnx.TensorProto.INT32
    row = archgen.study("soma-edge", str(path), plots=False).frame.iloc[0]
    assert (row["status"], row["verified"], row["host_ops"]) == ("ok", True, 0)


def test_what_is_wrong_with_encodings_is_said_at_once(tmp_path: Path) -> None:
    first, *_ = forms(network(tmp_path))
    first["activation_encodings"]["zz"] = first["activation_encodings"].pop("z")
    first["param_encodings"]["v"][0]["bitwidth"] = 4
    path = tmp_path / "net.encodings"
    path.write_text(json.dumps(first))
    with pytest.raises(ModelError) as caught:
        open_model(path)
    text = str(caught.value)
    assert "'v': uint4: expected integers of 8, 16 or 32 bits" in text
    assert "'zz': the network has none of that name; did you mean 'z'?" in text
    path.write_text("{}")
    with pytest.raises(ModelError, match="activation_encodings"):
        open_model(path)
    (tmp_path / "net.onnx").unlink()
    with pytest.raises(ModelError, match=r"net\.onnx does not exist"):
        open_model(path)
