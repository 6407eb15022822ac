"""Where the numbers of a model's constants are: in its message, in a file, or made from a seed.

The one idea: an initializer whose numbers are elsewhere says so as ONNX has it (`data_location`),
so a network of any size is a small message, and its weights are mapped or made by whoever asks
for them, each time, and kept by nobody.

    location       basepath     numbers
    a file's name  its folder   bytes of the file, from an offset on
    seed:S std:D   -            normal, of standard deviation D, seeded by S and the tensor's name
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.external_data_helper import ExternalDataInfo

Array = NDArray[Any]
_SEEDED = "seed:"


def is_outside(tensor: TensorProto) -> bool:
    """Whether the numbers of `tensor` are not in its message."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def _is_mapped(tensor: TensorProto) -> bool:
    locations = (entry.value for entry in tensor.external_data if entry.key == "location")
    return is_outside(tensor) and not next(locations, "").startswith(_SEEDED)


def set_normal(tensor: TensorProto, shape: Sequence[int], seed: int, std: float) -> None:
    """Let `tensor` be normal fp32 numbers of this shape and standard deviation, which follow from
    `seed` and its name."""
    tensor.data_type, tensor.data_location = TensorProto.FLOAT, TensorProto.EXTERNAL
    tensor.dims.extend(shape)
    tensor.external_data.add(key="location", value=f"{_SEEDED}{seed} std:{std!r}")


def set_folder(tensor: TensorProto, folder: str) -> None:
    """Say of a `tensor` in a file in which folder that is."""
    tensor.data_location = TensorProto.EXTERNAL
    kept = [entry for entry in tensor.external_data if entry.key != "basepath"]
    del tensor.external_data[:]
    tensor.external_data.extend(kept)
    tensor.external_data.add(key="basepath", value=folder)


def stored_tensor(tensor: TensorProto) -> ir.TensorProtocol:
    """`tensor` with its numbers, wherever they are."""
    if not is_outside(tensor):
        return ir.serde.deserialize_tensor(tensor)
    place, shape, name = ExternalDataInfo(tensor), ir.Shape(tensor.dims), tensor.name
    kind = ir.DataType(tensor.data_type)

    def tensor_there() -> ir.TensorProtocol:
        if not _is_mapped(tensor):
            return ir.Tensor(_normal(name, shape.numpy(), place.location))
        return ir.ExternalTensor(
            place.location, place.offset, place.length, kind, shape=shape, name=name,
            base_dir=place.basepath,
        )  # fmt: skip

    return ir.LazyTensor(tensor_there, kind, shape, name=name)


def _normal(name: str, shape: tuple[int, ...], said: str) -> Array:
    seed, std = (part.partition(":")[2] for part in said.split())
    random = np.random.Generator(np.random.SFC64([int(seed), zlib.crc32(name.encode())]))
    values = random.standard_normal(shape, np.float32)
    values *= np.float32(std)
    return values


def numbers_in(tensor: TensorProto) -> Array:
    """The numbers of `tensor`."""
    made: Array = (
        stored_tensor(tensor).numpy() if is_outside(tensor) else numpy_helper.to_array(tensor)
    )
    return made


def content_of(tensor: TensorProto) -> Iterator[bytes | memoryview]:
    """Bytes that tell `tensor` from others: those of a file wherever it is, of a seed none."""
    if not _is_mapped(tensor):
        yield tensor.SerializeToString(deterministic=True)
        return
    outline = TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    yield outline.SerializeToString(deterministic=True)
    yield np.ascontiguousarray(numbers_in(tensor)).reshape(-1).view(np.uint8).data


def with_all_numbers(proto: onnx.ModelProto) -> onnx.ModelProto:
    """`proto` with all numbers of its main graph in the message, which holds up to 2 GB: a copy, or
    itself where they are."""
    if not any(map(is_outside, proto.graph.initializer)):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for tensor in filter(is_outside, copy.graph.initializer):
        set_inside(tensor)
    return copy


def set_inside(tensor: TensorProto) -> None:
    """Put the numbers of `tensor`, which are elsewhere, in its message."""
    tensor.raw_data = stored_tensor(tensor).tobytes()
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
