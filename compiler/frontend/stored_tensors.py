"""Where the numbers of a model's constants are: in its message, in a file, or made from a seed.

The one idea: an initializer whose numbers are elsewhere says so as ONNX has it (`data_location`),
so a network of any size is a small message, and its weights are mapped or made by whoever asks
for them, each time; the last few that were made serve who asks next.

    location       basepath     numbers
    a file's name  its folder   bytes of the file, from an offset on
    normal:S std:D -            normal, of standard deviation D, seeded by S and the tensor's name

Behind a seed may stand `mxfp4:A`: rounded to that microscaling format along axis A.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from threading import Lock

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor

from simmodel.arch.dtype import Array, microscaled
from simmodel.arch.lazy_array import Pieces

_SEEDED = "normal:"
_PACKED = tuple(
    getattr(TensorProto, name)
    for name in ("INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1")
    if hasattr(TensorProto, name)
)
"""Types whose elements share bytes."""


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


def set_microscaled(tensor: TensorProto, kind: str, axis: int) -> None:
    """Round the numbers of `tensor`, whole blocks along `axis`, to a microscaling format."""
    for entry in tensor.external_data:
        if is_outside(tensor) and entry.value.startswith(_SEEDED):
            entry.value += f" {kind}:{axis}"
            return
    values = _rounded(numbers_in(tensor), kind, axis)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _rounded(values: Array, kind: str, axis: int) -> Array:
    rows = microscaled(np.moveaxis(values, axis, -1), kind)
    return np.moveaxis(rows, -1, axis).astype(values.dtype)


def set_folder(tensor: TensorProto, folder: str) -> None:
    """Say of a `tensor` in a file in which folder that is."""
    tensor.data_location = TensorProto.EXTERNAL
    kept = [entry for entry in tensor.external_data if entry.key != "basepath"]
    del tensor.external_data[:]
    tensor.external_data.extend(kept)
    tensor.external_data.add(key="basepath", value=folder)


_LARGE = 1 << 16
"""Elements of a tensor that is not drawn number by number, which costs ten times as much."""
_POOL = 1 << 18
_STRETCH = 1 << 14


@cache
def _pool() -> Array:
    """Normal numbers that large tensors are mixed from."""
    return np.random.Generator(np.random.SFC64(0)).standard_normal(_POOL + _STRETCH, np.float32)


def _random_of(name: str, seed: str) -> np.random.Generator:
    """What draws the numbers of a tensor, by its name and `normal:S`."""
    told = [int(seed.partition(":")[2]), zlib.crc32(name.encode())]
    return np.random.Generator(np.random.SFC64(told))


def _normal(name: str, shape: tuple[int, ...], said: str) -> Array:
    seed, std = said.split()[:2]
    random, std = _random_of(name, seed), std.partition(":")[2]
    if math.prod(shape) < _LARGE:
        values = random.standard_normal(shape, np.float32)
        values *= np.float32(std)
        return values
    values = np.empty(shape, np.float32)
    _mixed(random, float(std), values.size)(0, values.reshape(-1))
    return values


def _mixed(random: np.random.Generator, std: float, size: int) -> Callable[[int, Array], None]:
    """Writes those of `size` large normal numbers that stand from a place on."""
    # A sum of two normal numbers whose weights are a sine and a cosine is a normal number, and
    # drawn weights and places give no two stretches, nor rows within them, alike.
    pool, second = _pool(), np.empty(_STRETCH, np.float32)
    count = -(-size // _STRETCH)
    places = random.integers(0, _POOL, (count, 2)).tolist()
    angles = random.uniform(0, 2 * math.pi, count)
    weights = (std * np.stack([np.cos(angles), np.sin(angles)], 1)).astype(np.float32)

    def write(start: int, out: Array) -> None:
        done = 0
        while done < out.size:
            number, behind = divmod(start + done, _STRETCH)
            made = out[done : done + _STRETCH - behind]
            (one, other), (near, far) = places[number], weights[number]
            one, other, done = one + behind, other + behind, done + made.size
            np.multiply(pool[one : one + made.size], near, out=made)
            made += np.multiply(pool[other : other + made.size], far, out=second[: made.size])

    return write


_LATELY = 1 << 26
"""Bytes of what was made lately: a program, its check and the reference ask one after another."""
_lately: dict[tuple[str, tuple[int, ...], str], Array] = {}
_lately_lock = Lock()


def _seeded(name: str, shape: tuple[int, ...], said: str) -> Array:
    key = name, shape, said
    with _lately_lock:
        values = _lately.pop(key, None)
    if values is None:
        values = _normal(name, shape, said)
        for form, _, axis in (each.partition(":") for each in said.split()[2:]):
            values = _rounded(values, form, int(axis))
        values.flags.writeable = False
    if values.nbytes <= _LATELY:
        with _lately_lock:
            _lately[key] = values
            while sum(each.nbytes for each in _lately.values()) > _LATELY:
                del _lately[next(iter(_lately))]
    return values


def seed_of(values: Array) -> str | None:
    """What tells `values` from others, which are a view of something made lately; None: nothing
    shorter than they are."""
    whole = values if values.base is None else values.base
    with _lately_lock:
        found = next((key for key, made in _lately.items() if made is whole), None)
    if found is None:
        return None
    start = values.ctypes.data - whole.ctypes.data
    return f"{found} {values.dtype} {values.shape} {values.strides} {start}"


def numbers_in(tensor: TensorProto) -> Array:
    """The numbers of `tensor`, wherever they are."""
    if not is_outside(tensor):
        made: Array = numpy_helper.to_array(tensor)
        return made
    place, shape = ExternalDataInfo(tensor), tuple(tensor.dims)
    if not _is_mapped(tensor):
        return _seeded(tensor.name, shape, place.location)
    if tensor.data_type in _PACKED or 0 in shape:
        return numbers_in(_loaded(tensor))
    kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return np.memmap(Path(place.basepath, place.location), kind, "r", place.offset or 0, shape)


def key_of(tensor: TensorProto) -> str:
    """What tells numbers that are made from a seed from others; empty: they are in a file."""
    return "" if _is_mapped(tensor) else tensor.SerializeToString(deterministic=True).hex()


def pieces_in(tensor: TensorProto, size: int = 1 << 21) -> Pieces:
    """The numbers of `tensor`, which are not in its message, by rows of its first axis; about
    `size` of them at a time."""
    shape, place = tuple(tensor.dims), ExternalDataInfo(tensor)
    width = max(1, math.prod(shape[1:]))
    step, count = max(1, size // width), shape[0] if shape else 1
    seed, std, *forms = place.location.split() if not _is_mapped(tensor) else ("", "", "")
    cuts = [slice(first, min(first + step, count)) for first in range(0, count, step)]
    if forms or 4 * width * count <= _LATELY or _is_mapped(tensor):
        whole = numbers_in(tensor)
        yield from ((cut, whole[cut]) for cut in cuts)
        return
    write = _mixed(_random_of(tensor.name, seed), float(std.partition(":")[2]), width * count)
    for cut in cuts:
        piece = np.empty((cut.stop - cut.start, *shape[1:]), np.float32)
        write(cut.start * width, piece.reshape(-1))
        yield cut, piece


def _loaded(tensor: TensorProto) -> TensorProto:
    """`tensor` with its bytes from a file in the message."""
    copy = TensorProto()
    copy.CopyFrom(tensor)
    load_external_data_for_tensor(copy, ExternalDataInfo(tensor).basepath)
    copy.ClearField("external_data")
    copy.ClearField("data_location")
    return copy


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
    if _is_mapped(tensor):
        tensor.CopyFrom(_loaded(tensor))
        return
    tensor.raw_data = numbers_in(tensor).tobytes()
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
