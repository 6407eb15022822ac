"""A network at all lengths of some ranges as it is compiled: prepared at each alike.

The one idea: what samples decide, the scales of an int8 network, they decide once, at both edges of
the ranges and between them; at every length the network computes with the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

import onnx
import onnx_ir as ir

from archgen.cache import content_hash
from archgen.check.quantize import Array, Shorter
from archgen.check.reference import folded_by_reference, run_node, sample_inputs
from archgen.check.same_scales import with_scales_of
from archgen.check.widen import widened
from archgen.models.errors import ModelError
from archgen.models.family import SourceFamily
from archgen.models.load import SourceModel
from archgen.studies.prepare import Prepared, prepare
from compiler.api import Family, OpenAxes, Stages, following_lengths, prepared

_FAR = 4
"""How many times the lower edge the upper one is where there is something between them."""


@dataclass(frozen=True)
class PreparedFamily:
    """A network at all lengths of some ranges, for one element type."""

    source: SourceFamily
    dtype: str
    edge: Prepared
    """At the upper edge of all ranges."""
    stages: Stages | None = None
    """How far sequences unfold."""

    @property
    def name(self) -> str:
        """The network's."""
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

    def loaded(self, stages: Stages) -> Family:
        """What the compiler makes of it."""
        low = {register.name: register.low for register in self.source.registers}
        waiting: list[onnx.ModelProto] = []

        @cache
        def following() -> OpenAxes:
            """Told by the lower end, where the compiler will look too."""
            waiting.append(self.at(low).proto)
            return following_lengths([self.edge.proto, *waiting], self.name, stages)

        def at(lengths: Mapping[str, int]) -> ir.Model | None:
            axes = following()
            try:
                proto = waiting.pop() if waiting and lengths == low else self.at(lengths).proto
            except ModelError:
                if self.source.inside(lengths):
                    raise
                return None
            return prepared(proto, self.name, stages, following=axes)

        return Family(self.source.registers, at, run_node, self._constants)

    def _constants(self, names: Collection[str], lengths: Mapping[str, int]) -> dict[str, Array]:
        """Numbers that follow from the lengths, as they stand in the networks: those of an int8
        network are what ONNX Runtime has folded before it was quantized."""
        compute = folded_by_reference if self.dtype == "int8" else None
        return self.source.constants(names, lengths, compute)


def prepare_family(
    source: SourceFamily,
    dtype: str,
    calibration: Mapping[str, Array] | None = None,
    stages: Stages | None = None,
) -> PreparedFamily:
    """`source` for element type `dtype`; arguments and errors as of `prepare`."""
    shorter = [_shorter(source, at) for at in _tried(source)] if dtype == "int8" else []
    edge = prepare(source.edge, dtype, calibration, stages, shorter)
    return PreparedFamily(source, dtype, edge, stages)


def _tried(source: SourceFamily) -> list[dict[str, int]]:
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
