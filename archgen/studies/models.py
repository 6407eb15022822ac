"""The models that consecutive points of a study share, prepared and loaded once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import onnx
from numpy.typing import NDArray

from archgen.models.arrays import load_calibration
from archgen.models.family import open_family
from archgen.models.load import ModelError, SourceModel, open_model
from archgen.models.sizes import check_sizes
from archgen.outcomes.point import Point
from archgen.process.steps import step
from archgen.studies.family import PreparedFamily, prepare_family
from archgen.studies.prepare import Prepared, prepare
from compiler.api import Family, Stages

Array = NDArray[Any]
_KEPT_MODELS = 2


@dataclass(frozen=True)
class Kept:
    """A prepared model and what the compiler loaded from it, for all lengths of the point's ranges
    where it has some."""

    model: Prepared
    loaded: Any
    opened: Callable[[], SourceModel]
    """Opens the network again, as it was before it was prepared."""


class Models:
    """The last models that points needed, prepared and loaded."""

    def __init__(self, load: Callable[[onnx.ModelProto, str, Stages], Any]) -> None:
        self._load = load
        self._kept: OrderedDict[tuple[Any, ...], Kept] = OrderedDict()
        self._last: tuple[tuple[Any, ...], tuple[PreparedFamily, Family]] | None = None

    def of(self, point: Point) -> Kept:
        """The model of `point`. Raises ModelError, or DoesNotFit for its inputs alone."""
        if point.ranges:
            family, loaded = self._family(point)
            lengths = point.lengths
            return Kept(family.at(lengths), loaded, lambda: family.source.at(lengths))
        integer = point.dtype == "int8"
        asked = (point.model, point.batch, point.dims, point.roles)
        stages = point.scheduling.stages
        wanted = (*asked, integer, point.calibration, stages.shared, point.extensions)
        if wanted in self._kept:
            self._kept.move_to_end(wanted)
            return self._kept[wanted]
        opened = partial(
            open_model, point.model, point.batch, dict(point.dims), roles=dict(point.roles)
        )
        with step(f"opening {point.model}"):
            source = opened()
            check_sizes(source, point.arch, point.dtype)
        made = self._prepared(source, point, load_calibration(point.calibration))
        with step(f"loading {made.name}"):
            kept = Kept(made, self._load(made.proto, made.name, stages), opened)
        self._kept[wanted] = kept
        if len(self._kept) > _KEPT_MODELS:
            self._kept.popitem(last=False)
        return kept

    def _family(self, point: Point) -> tuple[PreparedFamily, Family]:
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
        family = prepare_family(source, point.dtype, load_calibration(point.calibration), stages)
        made = family, family.loaded(stages)
        self._last = wanted, made
        return made

    def _prepared(
        self, source: SourceModel, point: Point, calibration: Mapping[str, Array] | None
    ) -> Prepared:
        """As `prepare`; what is wrong with the network itself is said by the compiler, which names
        the node, rather than by a quantizer that stumbles over it."""
        try:
            return prepare(source, point.dtype, calibration, point.scheduling.stages)
        except ModelError:
            self._load(source.proto, source.name, point.scheduling.stages)
            raise
