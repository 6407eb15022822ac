"""The options of every stage of `compiler.pipeline`, in the order of the page.

The one idea: each entry is a pass or a row of rewrites, and the fields of a pass are its options
(`archgen explain passes`), so whatever the compiler can be told is in one value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

import onnx_ir as ir

from compiler.codegen.fill_shared import FillShared
from compiler.codegen.issue_order.order import OrderInstructions
from compiler.codegen.multicast import ShareLoads
from compiler.codegen.split_loads import SplitLoads
from compiler.frontend.canonicalize.fold_constants import FoldConstants
from compiler.frontend.canonicalize.fold_linear import (
    FoldAffine,
    FoldBatchNorm,
    FoldPad,
    FoldSpaceToDepth,
)
from compiler.frontend.canonicalize.fuse_activations import FuseActivations
from compiler.frontend.canonicalize.group_heads import GroupHeads
from compiler.frontend.canonicalize.normalize import NormalizeAxes, NormalizeConv, NormalizeGemm
from compiler.frontend.canonicalize.skip_masked import SkipMasked
from compiler.frontend.canonicalize.split_axes import KeepAxesApart
from compiler.frontend.importer import Load
from compiler.frontend.operators.attention import DecomposeAttention
from compiler.frontend.operators.functions import DecomposeOperators
from compiler.frontend.operators.windows import DecomposeWindows
from compiler.frontend.quantization.integer_operators import IntegerOperators
from compiler.frontend.quantization.move_quantize import HoistQuantize, SinkDequantize
from compiler.lowering.lower import Lower
from compiler.memory.on_chip import PlaceBuffers
from compiler.passes import Amount, Factor, Pass, Share, within
from compiler.plan.make_plan import MakePlan
from compiler.schedule.batch import ChooseInstances
from compiler.schedule.fusion.fuse_tails import FuseTails
from compiler.schedule.fusion.greedy import Branch, BranchX
from compiler.schedule.fusion.optimal import STRATEGIES, Optimal
from compiler.schedule.fusion.partition import PartitionStrategy, Unfused
from compiler.schedule.residency.activations import KeepTensors
from compiler.schedule.residency.shared_memory import ChooseHomes
from compiler.schedule.residency.weights import PinConstants
from compiler.schedule.tiling.choose_tiles import Breadth, ChooseTiles
from compiler.schedule.tiling.objective import Objective
from compiler.target.add_on_write_back import AddOnWriteBack
from compiler.target.bind import Bind
from compiler.target.fill_columns import FillColumns
from compiler.target.fuse_functions import FuseFunctions
from compiler.target.group_depthwise import GroupDepthwise
from compiler.target.join_kernel_rows import JoinKernelRows
from compiler.target.lookup_tables import FillTables
from compiler.target.narrow_weights import KeepNarrow
from compiler.target.place_on_host import PlaceOnHost
from compiler.target.rows import CopyRows
from compiler.target.start_sums import StartSums
from compiler.target.vector_functions import ExpandFunctions
from compiler.target.winograd_kernels import TransformKernels
from compiler.tensor_ir.fold import FoldBias, FoldClips, FoldConversions, StoreEncoded
from compiler.tensor_ir.gather_rows import ReadRows
from compiler.tensor_ir.join import JoinConcat, JoinHost
from compiler.tensor_ir.nest import NestGraph

# How many schedules of a group a judge is asked about, and what it says of them.


@dataclass(frozen=True)
class JudgeGroups:
    """Run other schedules of each group alone, where a simulator is at hand, and take the best.

    before:
        group 3: two slots, 12 100 cycles expected        simulated 14 900
    after:
        group 3: one slot, 12 600 cycles expected         simulated 12 800
    """

    candidates: Amount = 4
    """Schedules of a group that are tried beside the one that the estimates prefer."""
    within: Factor = 0.25
    """Share by which the estimate of a schedule, or of a whole program, that is tried may be
    higher."""
    instructions: Amount = 4_000
    """Of all programs that are run, together: when there have been as many, no more follow."""
    worth: Share = 0.02
    """Share of the whole run that a group could save at most, for its schedules to be tried."""
    patience: Annotated[float, within(1)] = 2.0
    """Times the cycles of the first program that one with less memory may take, where least memory
    is sought."""


ESTIMATED = "as estimated"
"""What the estimates prefer, among the trials of a group."""


@dataclass(frozen=True)
class Trial:
    """One schedule of a group that was run."""

    what: str
    estimated: float
    """Cycles."""
    cycles: int
    """Simulated, of the group alone."""


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
    FoldSpaceToDepth(),  # behind all that moves padding and quantization to its convolution
    FoldConstants(),  # the weights that stayed float
    FuseActivations(),  # before decompositions blur the spellings
    DecomposeAttention(),
    SkipMasked(),  # between them: attention is in standard operators, and its softmax is one
    DecomposeOperators(),  # weights that are no constants now never will be
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
    tables: FillTables = field(default_factory=FillTables)
    """Functions of 8-bit numbers that this machine looks up."""
    additions: AddOnWriteBack = field(default_factory=AddOnWriteBack)
    """Residuals that an array adds to its results."""
    host: PlaceOnHost = field(default_factory=PlaceOnHost)
    depthwise: GroupDepthwise = field(default_factory=GroupDepthwise)
    """Channels that an array without a depthwise mode takes at once."""
    kernel_rows: JoinKernelRows = field(default_factory=JoinKernelRows)
    """Kernel rows that one product takes at once."""
    narrow: KeepNarrow = field(default_factory=KeepNarrow)
    """Constants that memory holds in fewer bytes than engines multiply."""
    kernels: TransformKernels = field(default_factory=TransformKernels)
    """Kernels that memory holds in more bytes, for fewer products."""
    starts: StartSums = field(default_factory=StartSums)
    """Biases from which the array starts its sums."""
    columns: FillColumns = field(default_factory=FillColumns)
    """Pixels that the array takes side by side, where outputs are few."""
    join_host: JoinHost = field(default_factory=JoinHost)
    layout: tuple[Pass[NestGraph], ...] = LAYOUT_PASSES
    fuse: FuseTails = field(default_factory=FuseTails)
    """Nests become layers, each a product or another operator with its element-wise tail."""
    bind: Bind = field(default_factory=Bind)
    """The engine of every operator."""
    partition: PartitionStrategy = field(default_factory=Optimal)
    """Layers become groups that share tile loops."""
    instances: ChooseInstances = field(default_factory=ChooseInstances)
    """Layers that are done for one part of the batch at a time."""
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
    fill: FillShared = field(default_factory=FillShared)
    """Constants that wait in shared memory, where an engine of its own fills that."""
    order: OrderInstructions = field(default_factory=OrderInstructions)
    """The instructions of each core, after they are emitted."""
    judge: JudgeGroups = field(default_factory=JudgeGroups)
    """Other schedules for the groups of a program, where a simulator is at hand."""

    @property
    def shared(self) -> tuple[object, ...]:
        """What a network before `lower` depends on: machines that agree in it can share that."""
        return self.load, self.graph

    @property
    def layers(self) -> tuple[object, ...]:
        """What the layers of a network on a machine depend on beside the two."""
        return (
            *self.shared, self.lower, self.nests, self.marks, self.rows, self.functions,
            self.tables, self.host, self.depthwise, self.kernel_rows, self.narrow, self.kernels,
            self.starts, self.columns, self.join_host, self.layout, self.fuse, self.bind,
        )  # fmt: skip


# How long the compiler may think: options of its searches for a level of effort.

ALL = 1_000_000
"""More than there is of anything that is counted here."""


@dataclass(frozen=True)
class Effort:
    """One level."""

    breadth: Breadth
    partition: Optimal
    judge: JudgeGroups


LEVELS: tuple[Effort, ...] = (
    Effort(
        Breadth(sizes=2, patience=1, splits=4),
        Optimal(lengths=16, patience=1, orders=1, rounds=0, merge=False),
        JudgeGroups(candidates=0),
    ),
    Effort(Breadth(), Optimal(), JudgeGroups()),
    Effort(
        Breadth(sizes=ALL, patience=4, splits=ALL),
        Optimal(lengths=48, patience=8, orders=2, rounds=2),
        JudgeGroups(candidates=6, instructions=20_000, worth=0.005),
    ),
    Effort(
        Breadth(sizes=ALL, patience=ALL, growth=(1.34, 1.1), splits=ALL),
        Optimal(lengths=ALL, patience=16, orders=3, rounds=4),
        JudgeGroups(candidates=12, within=0.5, instructions=200_000, worth=0.002),
    ),
)
"""By level, from fast to wide."""


def stages_for(effort: int, stages: Stages | None = None) -> Stages:
    """The passes with the search options of a level; every other option as in `stages`.

    Raises:
        ValueError: no such level.
    """
    if not 0 <= effort < len(LEVELS):
        raise ValueError(f"effort {effort}; there are levels 0 to {len(LEVELS) - 1}")
    stages = stages or Stages()
    level = LEVELS[effort]
    tile = replace(stages.tile, breadth=level.breadth)
    return replace(stages, partition=level.partition, tile=tile, judge=level.judge)


def alternatives(effort: int, stages: Stages) -> tuple[Stages, ...]:
    """Ways to compile beside `stages` among which a judge may decide.

    From effort 1 on these and `stages` hold what lower efforts compile, so whoever takes the best
    of all is never worse off than with them.
    """
    if effort == 0:
        return ()
    whole = replace(stages, instances=replace(stages.instances, enabled=False))
    halved = replace(whole, partition=BranchX())
    apart = replace(whole, partition=Unfused(), keep=KeepTensors(enabled=False))
    mixed = replace(whole, partition=replace(stages.partition, alone=True))
    levels = isinstance(stages.partition, Optimal)
    if effort == 1:
        # What `halved` is better at, trials of groups find.
        return (apart, mixed, stages_for(0, stages)) if levels else ()
    usual = stages_for(1, stages)
    if not levels:
        usual = replace(usual, partition=stages.partition)
    eager = replace(usual, tile=replace(usual.tile, held_up=0.0))
    pieces = replace(usual, tile=replace(usual.tile, held_up=0.0, whole=False))
    memory = replace(usual, keep=KeepTensors(enabled=False))
    partition = LEVELS[0].partition if levels else stages.partition
    quick = replace(stages_for(0, stages), partition=partition)
    found: tuple[Stages, ...] = (usual, eager, pieces, memory, quick)
    if not levels:
        return found
    mixed = replace(usual, partition=mixed.partition)
    found = (*found, halved, apart, mixed)
    if effort == 2:
        return found
    return (*found, stages_for(2, stages), *(replace(s, partition=Branch()) for s in found[:3]))


# What a user may choose of how a network is scheduled, in words, and the passes that do it.

HALOS: Mapping[str, bool | None] = {"auto": None, "rolling": True, "recompute": False}
"""What neighbouring tiles of a group share: kept, computed again; auto: whichever is cheaper."""
OBJECTIVES: Mapping[str, Objective] = {
    "latency": "latency", "throughput": "throughput", "memory": "memory", "energy-proxy": "energy",
}  # fmt: skip
"""What schedules are compared by."""
EFFORTS = range(len(LEVELS))
"""How long the compiler may search."""


def stages_of(fusion: str, halo: str, objective: str, effort: int) -> Stages:
    """The passes for one choice of everything.

    Args:
        fusion: how layers are partitioned into groups, a name of `STRATEGIES`.
        halo: a name of `HALOS`.
        objective: a name of `OBJECTIVES`.
        effort: one of `EFFORTS`.
    """
    stages = stages_for(effort)
    # Least memory is found by compiling for less and less of it, as quick as that allows.
    sought = "latency" if objective == "memory" else OBJECTIVES[objective]
    tile = replace(stages.tile, rolling=HALOS[halo], objective=sought)
    strategy = STRATEGIES[fusion]
    partition = stages.partition if strategy is Optimal else strategy()
    fused = strategy is not Unfused  # else everything goes through DRAM
    keep, homes = KeepTensors(enabled=fused), replace(stages.homes, shared=fused)
    return replace(stages, partition=partition, tile=tile, keep=keep, homes=homes)
