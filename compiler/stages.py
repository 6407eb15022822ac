"""Every stage of the compiler, in order, on one page.

    ONNX -> graph -> nests -> groups -> tiles -> plans -> placement -> program

The one idea: each entry is a pass or a row of rewrites, and the fields of a pass are its options
(`archgen explain passes`), so whatever the compiler can be told is in one value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from compiler.alloc.on_chip import PlaceBuffers
from compiler.bind.bind import Bind
from compiler.bind.expand_functions import ExpandFunctions
from compiler.bind.fuse_functions import FuseFunctions
from compiler.bind.group_depthwise import GroupDepthwise
from compiler.bind.keep_narrow import KeepNarrow
from compiler.bind.place_on_host import PlaceOnHost
from compiler.bind.rows import CopyRows
from compiler.emit.multicast import ShareLoads
from compiler.emit.order import OrderInstructions
from compiler.emit.split_loads import SplitLoads
from compiler.fuse.fuse_tails import FuseTails
from compiler.fuse.optimal import Optimal
from compiler.fuse.partition import PartitionStrategy
from compiler.graph.decompose_attention import DecomposeAttention
from compiler.graph.decompose_composites import DecomposeComposites
from compiler.graph.decompose_kernels import DecomposeKernels
from compiler.graph.decompose_positions import DecomposePositions
from compiler.graph.decompose_ranks import DecomposeRanks
from compiler.graph.decompose_scatters import DecomposeScatters
from compiler.graph.decompose_windows import DecomposeWindows
from compiler.graph.fold_affine import FoldAffine
from compiler.graph.fold_batch_norm import FoldBatchNorm
from compiler.graph.fold_constants import FoldConstants
from compiler.graph.fold_pad import FoldPad
from compiler.graph.fuse_activations import FuseActivations
from compiler.graph.group_heads import GroupHeads
from compiler.graph.hoist_quantize import HoistQuantize
from compiler.graph.integer_operators import IntegerOperators
from compiler.graph.keep_axes_apart import KeepAxesApart
from compiler.graph.normalize_axes import NormalizeAxes
from compiler.graph.normalize_conv import NormalizeConv
from compiler.graph.normalize_gemm import NormalizeGemm
from compiler.graph.sink_dequantize import SinkDequantize
from compiler.homes import ChooseHomes
from compiler.judge_groups import JudgeGroups
from compiler.keep import KeepTensors
from compiler.load import Load
from compiler.nest.fold_bias import FoldBias
from compiler.nest.fold_clips import FoldClips
from compiler.nest.fold_conversions import FoldConversions
from compiler.nest.ir import NestGraph
from compiler.nest.join_concat import JoinConcat
from compiler.nest.join_host import JoinHost
from compiler.nest.read_rows import ReadRows
from compiler.nest.store_encoded import StoreEncoded
from compiler.ops.lower import Lower
from compiler.passes import Pass
from compiler.pin import PinConstants
from compiler.plan.make_plan import MakePlan
from compiler.tile.choose_tiles import ChooseTiles

GRAPH_PASSES: list[Pass[ir.Model]] = [
    KeepAxesApart(),  # first: which axes are open is known of values by their names behind `load`
    NormalizeConv(),  # padding must be explicit before any can be added to it
    DecomposeWindows(),  # behind its attributes, before padding and quantization look at windows
    FoldPad(),
    FoldBatchNorm(),
    FoldAffine(),  # after fold-batch-norm, which exposes Conv, Mul, Add chains
    SinkDequantize(),  # brings quantization next to the operators that integers can run
    HoistQuantize(),  # after sink-dequantize: what moves as it is need not be quantized again
    FoldConstants(keep=("DequantizeLinear",)),  # weights moved as integers are constants again
    IntegerOperators(),
    GroupHeads(),  # after integer-operators, whose products it knows
    FoldPad(),  # again: a Pad that became integer fits a QConv by its zero point
    FoldConstants(),  # the weights that stayed float
    FuseActivations(),  # before decompositions blur the spellings
    DecomposeKernels(),  # weights that are no constants now never will be
    DecomposeAttention(),
    DecomposePositions(),
    DecomposeRanks(),
    DecomposeScatters(),
    DecomposeComposites(),
    NormalizeGemm(),  # after integer-operators, which takes a Gemm whole
    FoldConstants(),  # what the decompositions computed from constants
    NormalizeAxes(),  # last: the axes and shapes of whatever is left
]
"""Rewrites of the ONNX graph, in order; extensions put theirs where they belong."""

NEST_PASSES: tuple[Pass[NestGraph], ...] = (
    FoldBias(),  # first: a bias must stand right behind its product
    FoldConversions(),  # before clips, so that a clip meets the encoding it is joined with
    FoldClips(),
    FoldConversions(),  # a quantization behind a clip that has just gone
)
"""Rewrites of nest graphs."""

LAYOUT_PASSES: tuple[Pass[NestGraph], ...] = (
    JoinConcat(),
    ReadRows(),  # where tables and lists of rows lie is known
    StoreEncoded(),  # last: a state lies in what it becomes, by join-concat or by rows that are put
)
"""Where tensors lie; after it is known what the host runs, which writes whole buffers."""


@dataclass(frozen=True)
class Stages:
    """The compiler from first to last, with all its options."""

    load: Load = field(default_factory=Load)
    """From the file to a graph of static shapes."""
    graph: tuple[Pass[ir.Model], ...] = field(default_factory=lambda: tuple(GRAPH_PASSES))
    """One spelling for each operator; up to here nothing depends on the machine."""
    lower: Lower = field(default_factory=Lower)
    """Operators become loops over affine accesses."""
    nests: tuple[Pass[NestGraph], ...] = NEST_PASSES
    marks: FuseFunctions = field(default_factory=FuseFunctions)
    """Functions of functions that one instruction of this machine does."""
    rows: CopyRows = field(default_factory=CopyRows)
    """Which rows copy engines pick and put by themselves; behind `lower`, before nests change."""
    functions: ExpandFunctions = field(default_factory=ExpandFunctions)
    """Functions that this machine lacks."""
    host: PlaceOnHost = field(default_factory=PlaceOnHost)
    depthwise: GroupDepthwise = field(default_factory=GroupDepthwise)
    """Channels that an array without a depthwise mode takes at once."""
    narrow: KeepNarrow = field(default_factory=KeepNarrow)
    """Constants that memory holds in fewer bytes than engines multiply."""
    join_host: JoinHost = field(default_factory=JoinHost)
    layout: tuple[Pass[NestGraph], ...] = LAYOUT_PASSES
    fuse: FuseTails = field(default_factory=FuseTails)
    """Nests become layers, each a product or another operator with its element-wise tail."""
    bind: Bind = field(default_factory=Bind)
    """The engine of every operator."""
    partition: PartitionStrategy = field(default_factory=Optimal)
    """Layers become groups that share tile loops."""
    pin: PinConstants = field(default_factory=PinConstants)
    keep: KeepTensors = field(default_factory=KeepTensors)
    homes: ChooseHomes = field(default_factory=ChooseHomes)
    tile: ChooseTiles = field(default_factory=ChooseTiles)
    """A schedule for each group; groups, homes and tiles are searched together."""
    plan: MakePlan = field(default_factory=MakePlan)
    alloc: PlaceBuffers = field(default_factory=PlaceBuffers)
    share: ShareLoads = field(default_factory=ShareLoads)
    """What one core loads for several, while instructions are emitted."""
    split: SplitLoads = field(default_factory=SplitLoads)
    """Loads that would wait for the last byte of their places."""
    order: OrderInstructions = field(default_factory=OrderInstructions)
    """The instructions of each core, after they are emitted."""
    judge: JudgeGroups = field(default_factory=JudgeGroups)
    """Other schedules for the groups of a program, where a simulator is at hand."""

    @property
    def shared(self) -> tuple[object, ...]:
        """What a network before `lower` depends on: machines that agree in it can share that."""
        return self.load, self.graph
