"""Float network -> int8 network, remembered by the content of network and samples.

The one idea: what comes back is the same whether it was made now or read from the cache, together
with a sentence on how it came to be: which samples set the ranges, what was quantized before, and
what had to stay float. The recipe itself is in ``int8``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from archgen.check.calibration import calibration_sets
from archgen.check.int8 import Calibrated, quantized_model
from archgen.check.quantizer_input import has_quantized_parts, products, widened
from archgen.check.reference import cached_reference, content_key, sample_inputs
from archgen.check.verify import differences
from archgen.models.load import ModelError, SourceModel, outlines
from archgen.process.files import cached_file
from archgen.zoo.shapes import attribute, copied
from compiler.api import Load, hides_products, with_all_numbers
from simmodel.arch.dtype import Array

# Changes when the recipe does, so that cached models of an older one are not used.
_RECIPE = 14
_SEEDED_SAMPLES = 4
_LEFT_FLOAT = "archgen.left_float"
"""Where a stored model says which of its operators could not be quantized."""


@dataclass(frozen=True)
class Quantized:
    """An int8 model in QDQ form, and a sentence on how it came to be."""

    proto: onnx.ModelProto = field(repr=False)
    note: str


@dataclass(frozen=True)
class Shorter:
    """A network at shorter lengths than one that is quantized, which shares its scales."""

    lengths: str
    """In words."""
    key: str
    """Of all but its weights, which are those of the longer one."""
    opened: Callable[[], SourceModel] = field(repr=False)


def quantize(
    source: SourceModel, calibration: Mapping[str, Array] | None, cache_dir: Path,
    load: Load | None = None, shorter: Sequence[Shorter] = (),
) -> Quantized:  # fmt: skip
    """Quantizes ``source``, or reads what an earlier call stored in ``cache_dir``.

    ``calibration`` maps each input to samples: of the input's shape, with one more leading axis,
    or with a multiple of its first extent. Without it, seeded inputs stand in. 16-bit floats are
    made float32 first. What is quantized already stays as it is; a model whose products all are
    is returned without further ado. What hides products is written out first, as far as ``load``,
    the pass of the compiler, unfolds it. Scales are wide enough for what is ``shorter`` as well;
    of samples that are given it has the beginning. Raises ``ModelError`` for samples that do not
    fit and for models that ONNX Runtime cannot quantize.
    """
    proto = widened(with_all_numbers(source.proto))
    samples = None if calibration is None else _split_samples(proto, calibration)
    wide = source if proto is source.proto else SourceModel(source.name, proto)
    facts = [] if wide is source else ["16-bit floats made float32"]
    done, left = products(proto)
    if has_quantized_parts(proto):
        if not left:
            return Quantized(proto, "; ".join(["quantized already; used as it is", *facts]))
        total = done + len(left)
        facts.append(f"what was quantized already stays so ({done} of {total} products)")
    if samples is None:
        taken, origin = calibration_sets(proto, range(_SEEDED_SAMPLES))
    else:
        taken, origin = samples, f"{len(samples)} given samples"
    if shorter:
        origin += f", also at {' and at '.join(each.lengths for each in shorter)}"
    if calibration is None:
        origin += ", not real data"
    facts.insert(0, f"int8 by ONNX Runtime (QDQ, weights by channel), calibrated on {origin}")
    unfold = load or Load()

    def make() -> bytes:
        beside = _calibrated(shorter, samples)
        made, left_out = quantized_model(wide.name, wide.proto, taken, unfold, beside)
        if left_out:
            made.metadata_props.add(key=_LEFT_FLOAT, value=", ".join(map(str, left_out)))
        serialized: bytes = made.SerializeToString()
        return serialized

    path = cache_dir / f"int8-{_cache_key(wide, taken, unfold, shorter)}.onnx"
    stored = onnx.load_model_from_string(cached_file(path, make))
    left_float = [entry.value for entry in stored.metadata_props if entry.key == _LEFT_FLOAT]
    facts += [f"left float, as it cannot be quantized: {value}" for value in left_float]
    return Quantized(stored, "; ".join(facts))


def _calibrated(
    networks: Sequence[Shorter], given: Sequence[dict[str, Array]] | None
) -> Iterator[Calibrated]:
    """Each of the shorter networks with samples of its own, or with the beginning of those that are
    given for the longest; opened one by one, as each has all weights."""
    for each in networks:
        proto = widened(with_all_numbers(each.opened().proto))
        proto.graph.name += f" at {each.lengths}"  # what goes wrong there says so
        if given is None:
            yield proto, calibration_sets(proto, range(_SEEDED_SAMPLES))[0]
        else:
            cuts = {n: tuple(map(slice, a.shape)) for n, a in sample_inputs(proto).items()}
            yield proto, [{n: sample[n][cut] for n, cut in cuts.items()} for sample in given]


def _cache_key(
    source: SourceModel, samples: list[dict[str, Array]], load: Load, shorter: Sequence[Shorter]
) -> str:
    digest = hashlib.sha256(f"{_RECIPE} {onnxruntime.__version__} {source.content_key}".encode())
    if hides_products(source.proto):
        digest.update(repr(load).encode())
    for sample in samples:
        digest.update(content_key(sample).encode())
    for each in shorter:
        digest.update(f" {each.lengths} {each.key}".encode())
    return digest.hexdigest()[:32]


# Calibration.


def _split_samples(
    proto: onnx.ModelProto, calibration: Mapping[str, Array]
) -> list[dict[str, Array]]:
    """Calibration arrays -> one mapping per sample; none is read before all have shapes that
    fit."""
    templates, given = sample_inputs(proto), outlines(calibration)
    unknown, missing = set(given) - set(templates), set(templates) - set(given)
    if unknown or missing:
        said = f"missing {sorted(missing)}" if missing else f"unknown {sorted(unknown)}"
        raise ModelError(f"calibration samples: {said}; the inputs are {sorted(templates)}")
    counts = {name: _sample_count(name, given[name], like) for name, like in templates.items()}
    if len(set(counts.values())) > 1:
        raise ModelError(f"calibration samples: inputs differ in number of samples: {counts}")
    if 0 in counts.values():
        raise ModelError("calibration samples: there are none")
    parts = {
        name: _samples_of_shape(name, calibration[name], (counts[name], *like.shape), like.dtype)
        for name, like in templates.items()
    }
    return [dict(zip(parts, sample, strict=True)) for sample in zip(*parts.values(), strict=True)]


def _sample_count(name: str, array: Array, like: Array) -> int:
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f") != (like.dtype.kind == "f"):
        raise ModelError(f"calibration samples: {name!r} is {array.dtype}, not {like.dtype}")
    if array.ndim and array.shape[1:] == like.shape:
        return int(array.shape[0])
    if array.shape == like.shape:
        return 1
    several = like.ndim and like.shape[0] and array.shape[1:] == like.shape[1:]
    if several and array.ndim == like.ndim and array.shape[0] % like.shape[0] == 0:
        return int(array.shape[0] // like.shape[0])
    raise ModelError(
        f"calibration samples: {name!r} has shape {list(array.shape)}, which is no number of "
        f"samples of {list(like.shape)}"
    )


def _samples_of_shape(name: str, array: Array, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    if not np.isfinite(array).all():
        raise ModelError(f"calibration samples: {name!r} has values that are not finite")
    return array.astype(dtype).reshape(shape)


# How far an int8 network is from the one that it was made of.


def unquantized_outputs(
    opened: Callable[[], SourceModel], inputs: Mapping[str, Array], cache_dir: Path
) -> Mapping[str, Array]:
    """Outputs of the network before it was quantized; none where it was quantized already. Raises
    ModelError where ONNX Runtime refuses it."""
    source = opened()
    wide = SourceModel(source.name, widened(source.proto))
    if not products(wide.proto)[1]:
        return {}
    return cached_reference(wide.proto, wide.content_key, inputs, cache_dir)


def quantization_error(actual: Mapping[str, Array], exact: Mapping[str, Array]) -> float | None:
    """The norm of what outputs of real numbers are off by, as a share of their own; the largest of
    any output. None where none can be compared."""
    found = []
    for name, values in exact.items():
        made = actual.get(name)
        if made is None or made.shape != values.shape or values.dtype.kind != "f":
            continue
        size = float(np.linalg.norm(values.astype(np.float64)))
        if np.isfinite(size) and size:
            found.append(float(np.linalg.norm(differences(made, values))) / size)
    return max(found, default=None)


# A network quantized like another one of the same weights and other lengths.

_STEPS = ("QuantizeLinear", "DequantizeLinear")


def with_scales_of(edge: onnx.ModelProto, given: onnx.ModelProto) -> onnx.ModelProto:
    """``given`` with scales, zero points and quantized constants of ``edge``, by their names, as
    far as they stand for the same numbers."""
    made = copied(given)
    known = {tensor.name: tensor for tensor in edge.graph.initializer}
    own = {tensor.name: tensor for tensor in given.graph.initializer}
    replaced: dict[str, onnx.TensorProto] = {}
    for node in given.graph.node:
        if node.op_type not in _STEPS or not {*node.input[1:]} <= known.keys():
            continue
        data = node.input[0]
        if data not in own:
            replaced |= {name: known[name] for name in node.input[1:]}
        elif data in known:
            tensor = _prefix_of_sample(node, own, known)
            if tensor is not None:
                replaced |= {data: tensor, **{name: known[name] for name in node.input[1:]}}
    for tensor in made.graph.initializer:
        if tensor.name in replaced:
            tensor.CopyFrom(replaced[tensor.name])
    return made


def _prefix_of_sample(
    node: onnx.NodeProto, own: dict[str, onnx.TensorProto], known: dict[str, onnx.TensorProto]
) -> onnx.TensorProto | None:
    """The edge's integers of a constant, as many as ``own`` has; None where they stand for other
    numbers."""
    ours, theirs = (_real(node, held) for held in (own, known))
    if ours is None or theirs is None or ours[0].ndim != theirs[0].ndim:
        return None
    (values, step), (edge, wide) = ours, theirs
    if any(n > m for n, m in zip(values.shape, edge.shape, strict=True)):
        return None
    cut = tuple(slice(0, extent) for extent in values.shape)
    if np.any(
        np.abs(values - edge[cut]) > np.maximum(step, 0) + np.broadcast_to(wide, edge.shape)[cut]
    ):
        return None
    integers = numpy_helper.to_array(known[node.input[0]])[cut]
    return numpy_helper.from_array(np.ascontiguousarray(integers), node.input[0])


def _real(node: onnx.NodeProto, held: dict[str, onnx.TensorProto]) -> tuple[Array, Array] | None:
    """The real values of a constant, and its scales over them."""
    if not {*node.input} <= held.keys():
        return None
    data, scale, *zero = (numpy_helper.to_array(held[name]) for name in node.input)
    axis = attribute(node, "axis", 1)
    if scale.size == 1:  # by tensor, also where it is a list of one, as of a single channel
        scale, zero = scale.reshape(()), [each.reshape(()) for each in zero]
    elif scale.ndim == 1 and data.ndim:
        if scale.size != data.shape[axis]:
            return None
        along = [1] * data.ndim
        along[axis] = -1
        scale, zero = scale.reshape(along), [each.reshape(along) for each in zero]
    steps = data.astype(np.float64) - (zero[0] if zero else 0)
    return steps * scale, np.broadcast_to(scale, data.shape).astype(np.float64)
