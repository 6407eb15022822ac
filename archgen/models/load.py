"""Opens the network a user asked for: one of the zoo or an ONNX file, with every shape bound.

The one idea: whatever is wrong with the request is said in a few lines of one exception,
``ModelError``; whatever comes back can be compiled and run, because no input dimension is left
free and no data is outside the message.
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.lib import format as npy
from onnx import TensorProto, checker, external_data_helper, helper, numpy_helper, shape_inference

from archgen.models.binding import batch_of, bind, partially_bound_roles
from archgen.models.constants import file_and_values, set_values
from archgen.models.damage import damages, data_damage
from archgen.models.encodings import SUFFIX, formats_of, round_operands, with_encodings
from archgen.models.errors import BatchError, ModelError
from archgen.models.roles import InferredRoles, infer_roles
from archgen.zoo.catalog import CATALOG, Option, ZooError, build
from archgen.zoo.shapes import SMALL, fixed_shapes, without_data, without_initializers
from compiler import api
from compiler.api import at_node, operator_name
from simmodel.arch.dtype import Array
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch

NEWEST_IR = int(onnx.IR_VERSION)
NEWEST_OPSET = int(onnx.defs.onnx_opset_version())
_BATCH = "batch"
_SHOWN = 8
"""Nodes with operators that do not exist that are named."""
_NEAR = 0.75
"""How much of a name a suggestion must share: `Concat` is not what `Frobnicate` stands for."""

__all__ = ["BatchError", "ModelError", "SourceModel", "check_proto", "open_model", "roles_of"]


@dataclass(frozen=True)
class SourceModel:
    """A network as the user gave it: ``proto`` holds fixed input shapes, and all data but for large
    constants, of which it may say where they are (`compiler.frontend.stored_tensors`)."""

    name: str
    proto: onnx.ModelProto = field(repr=False)

    @property
    def complete(self) -> onnx.ModelProto:
        """``proto`` with all data, as other software takes it; at most 2 GB."""
        return api.with_all_numbers(self.proto)

    @cached_property
    def batch(self) -> int:
        """Samples in one inference."""
        told = infer_roles(self.proto)
        axes = ((told.inputs[name], role.axis) for name, role in told.roles.items())
        return batch_of(port.dims[axis] for port, axis in axes if axis is not None)

    @property
    def edge(self) -> SourceModel:
        """The network of the most there can be, which this one is."""
        return self

    @cached_property
    def content_key(self) -> str:
        """SHA-256 (hex) of graph and weights: equal models have equal keys."""
        digest = hashlib.sha256()
        digest.update(without_initializers(self.proto).SerializeToString(deterministic=True))
        for tensor in self.proto.graph.initializer:
            for part in api.content_of(tensor):
                digest.update(part)
        return digest.hexdigest()


NAMED_NETWORK = "a file or the name of a network of the zoo"


def open_model(
    spec: str | Path, batch: int | None = None, dims: Mapping[str, int] | None = None,
    roles: Mapping[str, str] | None = None, ranges: Mapping[str, object] | None = None,
) -> SourceModel:  # fmt: skip
    """Opens ``spec``: a network of the zoo (``resnet50`` or ``resnet50:image=160,classes=10``) or
    the path of an ONNX file, of which inputs may be given values (``net.onnx:scale=0.25``), or of
    the quantization encodings beside it (``net.encodings``). ``weights=mxfp4`` among them rounds
    the weights of products, matrices and convolutions, to a microscaling format;
    ``activations=mxfp4`` also what these are multiplied by.

    ``dims`` binds free input dimensions by name, or by ``input:axis`` where they have none; those
    of a zoo network are its options and ``batch``. The axes of inputs that carry the batch are
    ``batch`` (where free, 1 unless it is given). ``roles`` say of inputs what they are, such as
    ``state`` or ``batch:1`` (`archgen.models.roles`). Messages name ``ranges`` that some of
    ``dims`` are in. Raises ``ModelError``, and nothing else, for any mistake; it is a
    ``BatchError`` where the model runs, but not at this batch.
    """
    if batch is not None and batch < 1:
        raise ModelError(f"batch {batch} must be positive")
    name, proto, free, known = _resolve_spec(spec, batch, dims or {})
    bind(proto, batch, free, roles or {}, str(spec), known, ranges)
    return SourceModel(name, proto)


def roles_of(
    spec: str | Path, dims: Mapping[str, int] | None = None, roles: Mapping[str, str] | None = None
) -> InferredRoles:
    """Inputs and outputs of the network that ``spec`` names, and the role of each input; arguments
    as for `open_model`, but what ``dims`` leave free stays free. Raises ``ModelError``."""
    _, proto, free, known = _resolve_spec(spec, None, dims or {}, weights=False)
    return partially_bound_roles(proto, free, roles or {}, str(spec), known)


def without_weights(
    spec: str | Path, batch: int | None, dims: Mapping[str, int], roles: Mapping[str, str]
) -> onnx.ModelProto:
    """As `open_model`, but initializers may be without data: for what follows from shapes."""
    _, proto, free, known = _resolve_spec(spec, batch, dims, weights=False)
    bind(proto, batch, free, roles, str(spec), known)
    return proto


def _resolve_spec(
    spec: str | Path, batch: int | None, dims: Mapping[str, int], weights: bool = True
) -> tuple[str, onnx.ModelProto, Mapping[str, int], Collection[str]]:
    """The name of a model, what is in it, as it is in its file, dimensions to be bound, and those
    that are options of it."""
    bare, formats = formats_of(str(spec))
    found = _resolve(Path(bare) if isinstance(spec, Path) else bare, batch, dims, weights)
    if formats and weights:
        round_operands(found[1], formats)
    return (found[0] if _is_path(bare) else str(spec), *found[1:])


def _resolve(
    spec: str | Path, batch: int | None, dims: Mapping[str, int], weights: bool
) -> tuple[str, onnx.ModelProto, Mapping[str, int], Collection[str]]:
    if isinstance(spec, Path) or _is_path(spec):
        path, values = file_and_values(str(spec))
        encoded = path.endswith(SUFFIX)
        proto = _load(Path(path).with_suffix(".onnx") if encoded else Path(path))
        if encoded:
            with_encodings(proto, Path(path))
        set_values(proto, values, str(spec))
        return Path(path).stem, proto, dims, ()
    name, _, text = spec.partition(":")
    merged = _parsed_options(name, text)
    if "weights" in merged:
        raise ModelError(f"{name}: a model to be opened keeps its weights")
    given = merged if batch is None else {**merged, _BATCH: batch}
    known = {_BATCH, *(CATALOG[name].options if name in CATALOG else ())}
    options = _with_sizes(spec, given, {n: size for n, size in dims.items() if n in known})
    free = {n: size for n, size in dims.items() if n not in known}
    try:
        return spec, build(name, weights=weights, **{_BATCH: 1, **options}), free, known
    except ZooError as mistake:
        path = _missing_hint(Path(spec)) or "; or give the path of an .onnx file"
        hint = "" if name in CATALOG else path
        raise ModelError(*f"{mistake}{hint}".split("\n")) from None


def zoo_options(spec: str) -> dict[str, Option | str]:
    """Every option of the network of the zoo that `spec` names, as it is given or by default;
    nothing for a file, or for what names none."""
    try:
        bare, formats = formats_of(spec)
        name, _, text = bare.partition(":")
        if name not in CATALOG or _is_path(bare):
            return {}
        return {**CATALOG[name].options, **_parsed_options(name, text), **formats}
    except ModelError:
        return {}


def _with_sizes(spec: str, given: Mapping[str, Option], dims: Mapping[str, int]) -> dict[str, Any]:
    """Options of a zoo network that sizes of dimensions are, and those that are ``given``."""
    twice = [f"{n}={given[n]}" for n, size in dims.items() if given.get(n, size) != size]
    if twice:
        raise ModelError(
            *(f"{spec}: --dim {said.split('=')[0]} is another one than {said}" for said in twice)
        )
    return {**given, **dims}


def _is_path(spec: str) -> bool:
    path, _ = file_and_values(spec)
    there = Path(path).is_file() or (path not in ("", *CATALOG) and Path(path).is_dir())
    return path.endswith((".onnx", SUFFIX)) or "/" in path or "\\" in path or there


def _parsed_options(name: str, text: str) -> dict[str, Option]:
    defaults = CATALOG[name].options if name in CATALOG else {}
    parsed: dict[str, Option] = {}
    for part in filter(None, text.split(",")):
        option, equals, value = part.partition("=")
        option, number = option.strip(), type(defaults.get(option.strip(), 1))
        if option in parsed:
            raise ModelError(f"{name}: option {option!r} is given twice: {text}")
        try:
            parsed[option] = number(value)
        except ValueError:
            kind = "a whole number" if number is int else "a number"
            shown = f"{value!r} is not {kind}" if equals else "it has no '=value'"
            raise ModelError(
                f"{name}: option {part!r}: {shown}; write {name}:option=value,option=value"
            ) from None
    return parsed


# Reading a file.


def _load(path: Path) -> onnx.ModelProto:
    if path.is_dir():
        raise ModelError(f"{path} is a directory; give an .onnx file{_found_in(path)}")
    if not path.exists():
        raise ModelError(f"{path} does not exist{_missing_hint(path)}")
    if not path.is_file():
        raise ModelError(f"{path} is not a regular file")
    try:
        data = path.read_bytes()
    except OSError as mistake:
        raise ModelError(f"{path} cannot be read: {mistake.strerror}") from None
    if not data:
        raise ModelError(f"{path} is empty")
    if data.startswith(b"version https://git-lfs"):
        raise ModelError(f"{path} is a Git LFS pointer, not the model; fetch it with git lfs pull")
    try:
        proto = onnx.load_model_from_string(data)
    except DecodeError:
        raise ModelError(f"{path} is not an ONNX model, or not all of it") from None
    check_proto(proto, str(path))
    _load_external_data(proto, path)
    return proto


def _found_in(directory: Path) -> str:
    found = sorted(directory.glob("*.onnx"))[:3]
    return f", e.g. {', '.join(str(path) for path in found)}" if found else ""


def _missing_hint(path: Path) -> str:
    siblings = [other.name for other in path.parent.glob("*.onnx")] if path.parent.is_dir() else []
    close = get_close_matches(path.name, siblings, 1, _NEAR)
    if close:
        return f"; did you mean {path.parent / close[0]}?"
    if path.stem in CATALOG:
        return f"; the zoo has {path.stem!r} (without .onnx)"
    return ""


def check_proto(proto: onnx.ModelProto, label: str) -> None:
    """Raises ``ModelError`` where ``proto``, which messages call ``label``, is no model that could
    be opened: empty, damaged, too new, of operators that ONNX does not have, or badly wired."""
    graph = proto.graph
    if not (graph.node or graph.output) or not proto.opset_import:
        raise ModelError(f"{label} is not an ONNX model: it has no graph or no operator set")
    if not graph.output:
        raise ModelError(f"{label} has a graph without outputs")
    if found := next(damages(proto), None):
        raise ModelError(f"{label} is damaged: {found}; export it again")
    if proto.ir_version > NEWEST_IR:
        raise ModelError(
            f"{label} has IR version {proto.ir_version}; the newest supported is {NEWEST_IR}. "
            "Export it with an older one (onnx: model.ir_version)"
        )
    for opset in proto.opset_import:
        if opset.domain in ("", "ai.onnx") and not 1 <= opset.version <= NEWEST_OPSET:
            raise ModelError(
                f"{label} uses operator set {opset.version}; supported are 1 to {NEWEST_OPSET}. "
                "Export it with one of these, e.g. opset_version=17"
            )
    if graph.sparse_initializer:
        names = ", ".join(repr(tensor.values.name) for tensor in graph.sparse_initializer[:_SHOWN])
        raise ModelError(
            f"{label} keeps {names} as sparse constants, which are not compiled; export dense ones"
        )
    _check_operators(proto, label)
    _check_wiring(graph, label)
    _check_ranges(graph, label)


def _check_operators(proto: onnx.ModelProto, label: str) -> None:
    """Names of the standard domain that neither an operator set nor ONNX Runtime has; all at
    once."""
    local = {function.name for function in proto.functions}
    unknown = [
        (node, index)
        for index, node in enumerate(proto.graph.node)
        if node.domain in ("", "ai.onnx")
        and node.op_type not in local
        and not api.is_known(node.op_type)
    ]
    if not unknown:
        return
    names = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    lines = []
    for node, index in unknown[:_SHOWN]:
        close = get_close_matches(node.op_type, names, 1, _NEAR)
        guess = f" (did you mean {close[0]!r}?)" if close else ""
        place = at_node(node.name or f"{node.op_type}_{index}", operator_name(node.op_type))
        lines.append(f"{place}: ONNX has no such operator{guess}")
    more = f"; and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    raise ModelError(f"{label}: {'; '.join(lines)}{more}")


def _check_wiring(graph: onnx.GraphProto, label: str) -> None:
    known = {"", *(value.name for value in graph.input)}
    known.update(tensor.name for tensor in graph.initializer)
    for node in graph.node:
        known.update(node.output)
    for node in graph.node:
        for name in node.input:
            if name not in known:
                reader = node.name or node.op_type
                raise ModelError(f"{label}: node {reader!r} reads {name!r}, which nothing produces")
    for output in graph.output:
        if output.name not in known:
            raise ModelError(f"{label}: nothing produces the output {output.name!r}")


def _check_ranges(graph: onnx.GraphProto, label: str) -> None:
    """Ranges between constants that are longer than a file may hold: ONNX's inference of shapes
    counts through them before anybody asks how long they are."""
    held = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            held[node.output[0]] = node.attribute[0].t
    held = {n: t for n, t in held.items() if math.prod(t.dims) == 1 and not t.external_data}
    for node in graph.node:
        if node.op_type != "Range" or len(node.input) != 3 or not held.keys() >= {*node.input}:
            continue
        first, end, step = (numpy_helper.to_array(held[name]).reshape(()) for name in node.input)
        size = (float(end) - float(first)) / (float(step) or math.nan) * step.itemsize
        if size > checker.MAXIMUM_PROTOBUF:
            what = f"from {first} to {end} by {step}"
            place = at_node(node.name or node.output[0], operator_name(node.op_type))
            raise ModelError(f"{label}: {place}: {what} is {size / 2**30:.3g} GiB of positions")


def _load_external_data(proto: onnx.ModelProto, path: Path) -> None:
    places = {
        entry.value
        for tensor in proto.graph.initializer
        for entry in tensor.external_data
        if tensor.data_location == TensorProto.EXTERNAL and entry.key == "location"
    }
    missing = sorted(place for place in places if not os.path.isfile(path.parent / place))
    if missing:
        raise ModelError(
            f"{path} keeps its weights in {', '.join(missing)}, which is not beside it "
            f"in {path.parent.resolve()}"
        )
    outside = [tensor for tensor in proto.graph.initializer if api.is_outside(tensor)]
    large = [tensor for tensor in outside if math.prod(tensor.dims) > SMALL]
    held: dict[str, int] = {}
    try:
        for tensor in large:
            held[tensor.name] = _bytes_outside(tensor, path.parent)
            tensor.data_location = TensorProto.DEFAULT  # so that all but these are loaded
        external_data_helper.load_external_data_for_model(proto, str(path.parent))
    except (checker.ValidationError, OSError, ValueError) as mistake:
        raise ModelError(f"{path}: external data cannot be read: {mistake}") from None
    for tensor in proto.graph.initializer:
        if found := data_damage(tensor, held.get(tensor.name)):
            raise ModelError(f"{path} is damaged: initializer {tensor.name!r} {found}")
    for tensor in large:
        api.set_folder(tensor, str(path.parent.resolve()))


def _bytes_outside(tensor: TensorProto, folder: Path) -> int:
    """How much data a file has for `tensor`. Raises as ONNX does where it may not be read."""
    place = external_data_helper.ExternalDataInfo(tensor)
    probe = TensorProto(name=tensor.name, data_location=TensorProto.EXTERNAL)
    start = place.offset or 0
    for key, value in (("location", place.location), ("offset", start), ("length", 0)):
        probe.external_data.add(key=key, value=str(value))
    external_data_helper.load_external_data_for_tensor(probe, str(folder))
    there = os.path.getsize(folder / place.location) - start
    return there if place.length is None else min(there, place.length)


# Arrays by name in .npz files: samples, inputs, outputs.

_SUFFIX = ".npy"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


@dataclass(frozen=True, eq=False)
class StoredArrays(Mapping[str, Array]):
    """Arrays of a file, each of which is read when it is first asked for. Raises ModelError then
    where it is damaged."""

    path: Path
    what: str
    outlines: Mapping[str, Array]
    """Arrays of their shapes and types, which have no numbers and take no memory."""
    _read: dict[str, Array] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> Array:
        if name in self.outlines and name not in self._read:
            with _open_npz(self.path, self.what) as file, file.open(f"{name}{_SUFFIX}") as member:
                array = npy.read_array(member, allow_pickle=False)
                # With its bytes in the order of this machine.
                self._read[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outlines)

    def __len__(self) -> int:
        return len(self.outlines)


def arrays_in(path: str | Path, what: str) -> StoredArrays:
    """Arrays of an .npz file by name; `what` they are starts each message.

    Raises:
        ModelError: there is no such file, or it holds something else.
    """
    with _open_npz(Path(path), what) as file:
        found = {}
        for name in file.namelist():
            with file.open(name) as member:
                found[name.removesuffix(_SUFFIX)] = _outline(name, member)
    return StoredArrays(Path(path), what, found)


def outlines(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """Arrays of the shapes and types of `arrays`, for which none is read from its file."""
    return arrays.outlines if isinstance(arrays, StoredArrays) else arrays


def load_calibration(path: str | Path | None) -> StoredArrays | None:
    """Arrays of an .npz file by input name; None for no path. Raises ModelError."""
    return None if path is None else arrays_in(path, "calibration")


@contextmanager
def _open_npz(path: Path, what: str) -> Iterator[zipfile.ZipFile]:
    """The file at `path`; within, what is wrong with it is a ModelError."""
    if path.exists() and not path.is_file():
        raise ModelError(f"{what} {path}: not a regular file")
    try:
        with path.open("rb") as file:
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                said = "one array (.npy), expected arrays by name"
                raise ModelError(f"{what} {path}: {said}, as np.savez(path, name=array) writes")
            if not zipfile.is_zipfile(file):
                raise ModelError(f"{what} {path}: not an .npz file of arrays")
            with zipfile.ZipFile(file) as archive:
                yield archive
    except FileNotFoundError:
        raise ModelError(f"{what} {path}: no such file") from None
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as wrong:
        # What numpy says of files that are none of its own is how to load them unsafely.
        reason = "" if "pickle" in str(wrong) else f": {wrong}"
        raise ModelError(f"{what} {path}: not an .npz file of arrays{reason}") from None


def _outline(name: str, member: IO[bytes]) -> Array:
    """An array of the shape and type that `member` has; raises ValueError where it is no array of
    numbers."""
    read = _HEADERS.get(npy.read_magic(member))
    if not name.endswith(_SUFFIX) or read is None:
        raise ValueError(f"{name!r} is no array")
    shape, _, kind = read(member)
    if kind.hasobject:
        raise ValueError(f"{name!r} holds objects of Python")
    try:
        return np.broadcast_to(np.empty((), kind.newbyteorder("=")), shape)
    except ValueError:
        raise ValueError(f"no array has the shape {list(shape)} of {name!r}") from None


# What a network needs at least, from shapes alone, before anything of that size is made: every
# value lies in DRAM at some time, and whoever computes one that is larger than DRAM first needs as
# much memory on this computer.


def check_sizes(source: SourceModel, arch: Arch, dtype: str) -> None:
    """Raises DoesNotFit where the inputs of `source` together, or any value that it computes, are
    more than DRAM, before any of them is made: floats as `dtype`, everything else as it is."""
    graph = source.proto.graph
    data = {tensor.name for tensor in graph.initializer}
    inputs = {f"input {v.name}": _bytes(v, dtype) for v in graph.input if v.name not in data}
    _refuse_over(arch, inputs, source.name)
    makers = {name: node.op_type for node in graph.node for name in node.output}
    try:
        light = shape_inference.infer_shapes(without_data(source.proto), data_prop=True).graph
    except shape_inference.InferenceError:
        return  # whoever loads the model says what is wrong with it
    shapes = fixed_shapes(light)
    for value in (*light.value_info, *light.output):
        if value.name in makers and value.name in shapes and value.type.tensor_type.elem_type:
            made = {f"{makers[value.name]} {value.name}": _bytes(value, dtype)}
            _refuse_over(arch, made, source.name)


def _refuse_over(arch: Arch, sizes: Mapping[str, int], name: str) -> None:
    room, demand = arch.memories.dram.size, sum(sizes.values())
    if demand > room:
        on_chip = arch.memories.dram.on_chip
        field, place = ("shared", "on-chip memory") if on_chip else ("dram", "DRAM")
        levers = ("a smaller batch or input", f"memories.{field}.size of at least {demand} B")
        raise api.DoesNotFit(demand, room, "B", tuple(sizes.items()), levers, f"{name}: {place}")


def _bytes(value: onnx.ValueInfoProto, dtype: str) -> int:
    """Bytes of a value whose type and shape are known."""
    kind = value.type.tensor_type
    item = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    size = min(item.itemsize, size_of(dtype)) if item.kind == "f" else item.itemsize
    count: int = math.prod(dim.dim_value for dim in kind.shape.dim)
    return count * size
