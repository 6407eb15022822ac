"""A network as it is compiled: opened, and quantized where the element type asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from typing import Any

import onnx
import onnx_ir as ir

from archgen.check import reference
from archgen.check.quantize import Quantized, Shorter, quantize, with_scales_of
from archgen.check.quantizer_input import has_bfloat16, widened, widened_but_for_casts
from archgen.check.reference import lacks_kernels, run_node, sample_inputs
from archgen.models.load import ModelError, SourceModel, check_sizes, load_calibration, open_model
from archgen.models.source_family import SourceFamily, open_family
from archgen.outcomes.points import Point
from archgen.process.files import Recent, cache_dir, content_hash
from archgen.process.steps import step
from compiler import api
from simmodel.arch.dtype import Array


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
    source: SourceModel, dtype: str, calibration: Mapping[str, Array] | None = None,
    stages: api.Stages | None = None, shorter: Sequence[Shorter] = (),
) -> Prepared:  # fmt: skip
    """`source` for element type `dtype`: quantized for int8, else as it is, or with wider numbers
    where ONNX Runtime has no kernels for bfloat16. How far sequences unfold is said by `stages`.
    Networks at `shorter` lengths share its scales.

    Raises UnsupportedModel for operators that nobody knows, and ModelError where quantizing fails.
    """
    api.refuse_unknown_operators(source.proto, source.name)
    if dtype != "int8" and has_bfloat16(source.proto) and lacks_kernels(source.proto):
        note = "16-bit floats made float32, as ONNX Runtime has no kernels for them; casts round"
        key = content_hash({"model": source.content_key, "note": note})
        return Prepared(source.name, widened_but_for_casts(source.proto), key, note)
    if dtype != "int8":
        return Prepared(source.name, source.proto, source.content_key, "")
    with step(f"quantizing {source.name}"):
        load = (stages or api.Stages()).load
        made: Quantized = quantize(source, calibration, cache_dir(), load, shorter)
    given = reference.content_key(calibration) if calibration else "seeded"
    parts = {"model": source.content_key, "calibration": given, "note": made.note}
    lengths = {"shorter": [each.key for each in shorter]} if shorter else {}
    key = content_hash(parts | lengths | {"load": asdict(load)})
    return Prepared(source.name, made.proto, key, made.note)


# A network at all lengths of some ranges as it is compiled: prepared at each alike.

_FAR = 4
"""How many times the lower edge the upper one is where there is something between them."""


@dataclass(frozen=True)
class PreparedSymbolicModel:
    """A network at all lengths of some ranges, for one element type."""

    source: SourceFamily
    dtype: str
    edge: Prepared
    """At the upper edge of all ranges."""
    stages: api.Stages | None = None
    """How far sequences unfold."""

    @property
    def name(self) -> str:
        return self.edge.name

    def at(self, lengths: Mapping[str, int]) -> Prepared:
        """The network at one length of each range; ModelError where there is none."""
        source = self.source.at(lengths)
        if source is self.source.edge:
            return self.edge
        if self.dtype != "int8":
            return prepare(source, self.dtype, None, self.stages)
        # One sample, as all that it decides is replaced.
        own = prepare(source, self.dtype, sample_inputs(widened(source.proto)), self.stages)
        made = with_scales_of(self.edge.proto, own.proto)
        key = content_hash({"edge": self.edge.key, "at": dict(sorted(lengths.items()))})
        return Prepared(self.name, made, key, self.edge.note)

    def loaded(self, stages: api.Stages) -> api.SymbolicModel:
        """What the compiler makes of it."""
        low = {register.name: register.low for register in self.source.registers}
        waiting: list[onnx.ModelProto] = []

        @cache
        def following() -> api.OpenAxes:
            """Told by the lower end, where the compiler will look too."""
            waiting.append(self.at(low).proto)
            return api.following_lengths([self.edge.proto, *waiting], self.name, stages)

        def at(lengths: Mapping[str, int]) -> ir.Model | None:
            axes = following()
            try:
                proto = waiting.pop() if waiting and lengths == low else self.at(lengths).proto
            except ModelError:
                if self.source.inside(lengths):
                    raise
                return None
            return api.prepared(proto, self.name, stages, following=axes)

        # Of an int8 network numbers are what ONNX Runtime has folded before it was quantized.
        compute = reference.folded_by_reference if self.dtype == "int8" else None
        constants = partial(self.source.constants, compute=compute)
        return api.SymbolicModel(self.source.registers, at, run_node, constants)


def prepare_symbolic_model(
    source: SourceFamily, dtype: str, calibration: Mapping[str, Array] | None = None,
    stages: api.Stages | None = None,
) -> PreparedSymbolicModel:  # fmt: skip
    """`source` for element type `dtype`; arguments and errors as of `prepare`."""
    shorter = (
        [_shorter(source, at) for at in _calibration_lengths(source)] if dtype == "int8" else []
    )
    edge = prepare(source.edge, dtype, calibration, stages, shorter)
    return PreparedSymbolicModel(source, dtype, edge, stages)


def _calibration_lengths(source: SourceFamily) -> list[dict[str, int]]:
    """Lengths below the upper edges at which values may be in other ranges: the lower edges, and
    between both as many times more than the one as less than the other, where those are so far
    apart that all together are at most as long as the upper edges."""
    spans = source.ranges
    low = {name: span.low for name, span in spans.items()}
    if all(span.low == span.high for span in spans.values()):
        return []
    if all(span.high < _FAR * span.low for span in spans.values()):
        return [low]
    return [low, {name: round(math.sqrt(r.low * r.high)) for name, r in spans.items()}]


def _shorter(source: SourceFamily, lengths: Mapping[str, int]) -> Shorter:
    said = ", ".join(f"{name} {length}" for name, length in lengths.items())
    key = SourceModel(source.name, source.shapes(lengths)).content_key
    return Shorter(said, key, lambda: source.at(lengths))


# The models that consecutive points of a study share, prepared and loaded once.

_KEPT_MODELS = 2


@dataclass(frozen=True)
class CachedModel:
    """A prepared model and what the compiler loaded from it, for all lengths of the point's ranges
    where it has some."""

    model: Prepared
    loaded: Any
    opened: Callable[[], SourceModel]
    """Opens the network again, as it was before it was prepared."""


class Models:
    """The last models that points needed, prepared and loaded."""

    def __init__(self, load: Callable[[onnx.ModelProto, str, api.Stages], Any]) -> None:
        self._load = load
        self._kept = Recent[CachedModel](_KEPT_MODELS)
        self._last: (
            tuple[tuple[Any, ...], tuple[PreparedSymbolicModel, api.SymbolicModel]] | None
        ) = None

    def of(self, point: Point) -> CachedModel:
        """The model of `point`. Raises ModelError, or DoesNotFit for its inputs alone."""
        if point.ranges:
            family, loaded = self._family(point)
            lengths = point.lengths
            return CachedModel(family.at(lengths), loaded, lambda: family.source.at(lengths))
        integer = point.dtype == "int8"
        asked = (point.model, point.batch, point.dims, point.roles)
        shared = point.scheduling.stages.shared
        wanted = (*asked, integer, point.calibration, shared, point.extensions)
        return self._kept.get(wanted, lambda: self._opened(point))

    def _opened(self, point: Point) -> CachedModel:
        opened = partial(
            open_model, point.model, point.batch, dict(point.dims), roles=dict(point.roles)
        )
        with step(f"opening {point.model}"):
            source = opened()
            check_sizes(source, point.arch, point.dtype)
        samples, stages = load_calibration(point.calibration), point.scheduling.stages
        try:
            model = prepare(source, point.dtype, samples, stages)
        except ModelError:
            # What is wrong with the network itself is said by the compiler, which names the node,
            # rather than by a quantizer that stumbles over it.
            self._load(source.proto, source.name, stages)
            raise
        with step(f"loading {model.name}"):
            return CachedModel(model, self._load(model.proto, model.name, stages), opened)

    def _family(self, point: Point) -> tuple[PreparedSymbolicModel, api.SymbolicModel]:
        """The network of `point` for all lengths of its ranges; the last one is kept."""
        ranges, stages = dict(point.ranges), point.scheduling.stages
        dims = {name: size for name, size in point.dims if name not in ranges}
        asked = (point.model, tuple(dims.items()), point.ranges, point.roles)
        wanted = (*asked, point.dtype, point.calibration, stages.shared, point.extensions)
        if self._last is not None and self._last[0] == wanted:
            made = self._last[1]
            if made[0].source.at(point.lengths).batch == point.batch:
                return made
        with step(f"opening {point.model}"):
            source = open_family(point.model, None, dims, ranges, dict(point.roles))
            if source.at(point.lengths).batch != point.batch:  # another than follows from lengths
                source = open_family(point.model, point.batch, dims, ranges, dict(point.roles))
            check_sizes(source.edge, point.arch, point.dtype)
        family = prepare_symbolic_model(
            source, point.dtype, load_calibration(point.calibration), stages
        )
        made = family, family.loaded(stages)
        self._last = wanted, made
        return made
