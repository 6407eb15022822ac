"""A network as it is compiled: opened, and quantized where the element type asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import onnx
from numpy.typing import NDArray

from archgen.cache import cache_dir, content_hash
from archgen.check.quantize import Quantized, Shorter, quantize
from archgen.check.reference import content_key, lacks_kernels
from archgen.check.widen import has_bfloat16, widened_but_for_casts
from archgen.models.load import SourceModel
from archgen.process.steps import step
from compiler.api import Stages, refuse_unknown_operators

Array = NDArray[Any]


@dataclass(frozen=True)
class Prepared:
    """A model as it is compiled: bound, and quantized where the element type asks for it."""

    name: str
    proto: onnx.ModelProto = field(repr=False)
    key: str
    note: str

    @property
    def edge(self) -> Prepared:
        """The network of the most there can be, which this one is."""
        return self


def prepare(
    source: SourceModel,
    dtype: str,
    calibration: Mapping[str, Array] | None = None,
    stages: Stages | None = None,
    shorter: Sequence[Shorter] = (),
) -> Prepared:
    """`source` for element type `dtype`: quantized for int8, else as it is, or with wider numbers
    where ONNX Runtime has no kernels for bfloat16. How far sequences unfold is said by `stages`.
    Networks at `shorter` lengths share its scales.

    Raises UnsupportedModel for operators that nobody knows, and ModelError where quantizing fails.
    """
    refuse_unknown_operators(source.proto, source.name)
    if dtype != "int8" and has_bfloat16(source.proto) and lacks_kernels(source.proto):
        note = "16-bit floats made float32, as ONNX Runtime has no kernels for them; casts round"
        key = content_hash({"model": source.content_key, "note": note})
        return Prepared(source.name, widened_but_for_casts(source.proto), key, note)
    if dtype != "int8":
        return Prepared(source.name, source.proto, source.content_key, "")
    with step(f"quantizing {source.name}"):
        load = (stages or Stages()).load
        made: Quantized = quantize(source, calibration, cache_dir(), load, shorter)
    given = content_key(calibration) if calibration else "seeded"
    parts = {"model": source.content_key, "calibration": given, "note": made.note}
    lengths = {"shorter": [each.key for each in shorter]} if shorter else {}
    key = content_hash(parts | lengths | {"load": asdict(load)})
    return Prepared(source.name, made.proto, key, made.note)
