"""Every stage of the compiler, in order, on one page.

    ONNX -> graph -> nests -> groups -> tiles -> plans -> placement -> program

Each entry is a pass or the place where one stands; the fields of a pass are its options.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.alloc.on_chip import PlaceBuffers
from compiler.bind.place_on_host import PlaceOnHost
from compiler.emit.order import OrderInstructions
from compiler.fuse.fuse_tails import FuseTails
from compiler.fuse.optimal import Optimal
from compiler.fuse.partition import PartitionStrategy
from compiler.graph.prepare import GRAPH_PASSES
from compiler.homes import ChooseHomes
from compiler.keep import KeepTensors
from compiler.nest.fold_bias import FoldBias
from compiler.nest.fold_clips import FoldClips
from compiler.nest.fold_conversions import FoldConversions
from compiler.nest.ir import NestGraph
from compiler.nest.join_concat import JoinConcat
from compiler.nest.join_host import JoinHost
from compiler.passes import Pass
from compiler.plan.make_plan import MakePlan
from compiler.tile.choose_tiles import ChooseTiles

NEST_PASSES: tuple[Pass[NestGraph], ...] = (
    FoldBias(),  # first: a bias must stand right behind its product
    FoldConversions(),  # before clips, so that a clip meets the encoding it is joined with
    FoldClips(),
    FoldConversions(),  # a quantization behind a clip that has just gone
)
"""Rewrites of nest graphs."""

LAYOUT_PASSES: tuple[Pass[NestGraph], ...] = (JoinConcat(),)
"""Where tensors lie; after it is known what the host runs, which writes whole buffers."""


@dataclass(frozen=True)
class Stages:
    """The passes between nests and program, with their options."""

    host: PlaceOnHost = field(default_factory=PlaceOnHost)
    join_host: JoinHost = field(default_factory=JoinHost)
    fuse: FuseTails = field(default_factory=FuseTails)
    partition: PartitionStrategy = field(default_factory=Optimal)
    keep: KeepTensors = field(default_factory=KeepTensors)
    homes: ChooseHomes = field(default_factory=ChooseHomes)
    tile: ChooseTiles = field(default_factory=ChooseTiles)
    plan: MakePlan = field(default_factory=MakePlan)
    alloc: PlaceBuffers = field(default_factory=PlaceBuffers)
    order: OrderInstructions = field(default_factory=OrderInstructions)


__all__ = ["GRAPH_PASSES", "LAYOUT_PASSES", "NEST_PASSES", "Stages"]
