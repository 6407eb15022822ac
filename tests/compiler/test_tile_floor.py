"""Floors spare prices: none may be above the cycles that it stands for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import onnx
from blocks import blocks
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machines

from compiler.api import CompileOptions, compile_model
from compiler.cost.multicast import MulticastRoute
from compiler.errors import DoesNotFit, UnsupportedModel
from compiler.options import Stages
from compiler.schedule.tiling.choose_tiles import ChooseTiles, GroupSearch
from compiler.schedule.tiling.group_price import GroupPricer
from compiler.schedule_ir.schedule import OuterLoop, Schedule
from compiler.tensor_ir.bounds import Box
from simmodel.arch.record import Arch

ROUNDED = 1 + 1e-9


class _Floored(GroupSearch):
    """Compares every price with its floor."""

    def _priced(
        self, pricer: GroupPricer, parts: tuple[Box, ...], loops: tuple[OuterLoop, ...]
    ) -> list[Schedule]:
        made = super()._priced(pricer, parts, loops)
        floor = pricer.floor(parts, loops, self.bounds)
        edged = pricer.edged(parts, loops, floor)
        for schedule in made:
            assert edged <= schedule.estimate.total * ROUNDED, (floor, schedule.estimate, loops)
        return made


@dataclass(frozen=True)
class _FlooredTiles(ChooseTiles):
    def together(self, arch: Arch, slots: int, way: MulticastRoute | None) -> GroupSearch:
        return _Floored(self, arch, slots, way)


@dataclass(frozen=True)
class _Floors(Stages):
    tile: ChooseTiles = field(default_factory=_FlooredTiles)


@settings(max_examples=40, derandomize=True)
@given(machines(), st.data())
def test_no_price_is_below_its_floor(arch: Arch, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(arch.types))
    model: onnx.ModelProto = data.draw(blocks(dtype == "int8", most=3))
    with suppress(DoesNotFit, UnsupportedModel):
        compile_model(model, arch, CompileOptions(dtype=dtype, stages=_Floors()))
