"""A network at all lengths of some free dimensions: opened at any of them.

The one idea: a range binds nothing. The network at one length is opened as ever, for the upper
edge, for others that show how it depends on the length, and for those that it is run at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx

from archgen.models.extents import SizeRange
from archgen.models.load import SourceModel, open_model, without_weights
from compiler.api import constant_values
from simmodel.arch.dtype import Array
from simmodel.isa.region import Register


@dataclass(frozen=True)
class SourceFamily:
    """A network as the user gave it, with ranges for some of its dimensions."""

    spec: str | Path
    batch: int | None
    dims: Mapping[str, int]
    ranges: Mapping[str, SizeRange]
    roles: Mapping[str, str]

    @property
    def name(self) -> str:
        """The network's."""
        return self.edge.name

    @property
    def registers(self) -> tuple[Register, ...]:
        """Lengths that are known only when a program runs."""
        return tuple(Register(name, r.low, r.high) for name, r in self.ranges.items())

    @cached_property
    def edge(self) -> SourceModel:
        """The network at the upper edge of all ranges."""
        return self._open({name: r.high for name, r in self.ranges.items()})

    def at(self, lengths: Mapping[str, int]) -> SourceModel:
        """The network at one length of each range, or beyond; ModelError where there is none. That
        at the upper edge alone is kept: each has all weights of its own."""
        edge = all(lengths[name] == r.high for name, r in self.ranges.items())
        return self.edge if edge else self._open(lengths)

    def _open(self, lengths: Mapping[str, int]) -> SourceModel:
        dims = {**self.dims, **lengths}
        return open_model(self.spec, self.batch, dims, roles=self.roles, ranges=self.ranges)

    def inside(self, lengths: Mapping[str, int]) -> bool:
        """Whether all lengths are within their ranges."""
        return all(r.low <= lengths[name] <= r.high for name, r in self.ranges.items())

    def constants(
        self, names: Collection[str], lengths: Mapping[str, int],
        compute: Callable[[onnx.ModelProto], Array | None] | None = None,
    ) -> dict[str, Array]:  # fmt: skip
        """Values that follow from constants and lengths alone; to the last bit as ``compute``
        says, where that is given."""
        return constant_values(self.shapes(lengths), names, self._initializers.get, compute)

    def shapes(self, lengths: Mapping[str, int]) -> onnx.ModelProto:
        """The network at one length of each range; initializers may be without data."""
        return without_weights(self.spec, self.batch, {**self.dims, **lengths}, self.roles)

    @cached_property
    def _initializers(self) -> dict[str, onnx.TensorProto]:
        return {tensor.name: tensor for tensor in self.edge.proto.graph.initializer}


def open_family(
    spec: str | Path, batch: int | None, dims: Mapping[str, int], ranges: Mapping[str, SizeRange],
    roles: Mapping[str, str],
) -> SourceFamily:  # fmt: skip
    """Opens ``spec`` for all lengths of ``ranges``; the rest as of `open_model`.

    Raises ``ModelError`` with every mistake; also where there is no such network at the lower end.
    """
    family = SourceFamily(spec, batch, dict(dims), dict(ranges), dict(roles))
    family.at({name: span.low for name, span in ranges.items()})
    _ = family.edge
    return family
