"""The architecture: one frozen record per part of a machine, each field with its unit and meaning.

This is the single definition of every field: the YAML loader validates against it, editors get its
JSON Schema, the compiler and the machine model read it.
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, NonNegativeInt, PositiveInt, Tag

from simmodel.arch.base import (
    CHAINS,
    NO_DELAY,
    OFF_CHIP,
    ArrayViews,
    Chain,
    ElementType,
    FrozenModel,
    MemoryRole,
    Names,
    NarrowType,
    RateType,
    Registry,
    Roles,
    StorageType,
    Writeback,
)
from simmodel.arch.costs import EnergyTable, Price
from simmodel.arch.element_types import WINOGRAD, winograd_gain
from simmodel.arch.grid import Grid
from simmodel.arch.memories import Memories, Share
from simmodel.arch.units import Bandwidth, Bytes, Delay, Hertz, Interval, Operations


class Winograd(FrozenModel):
    """3 x 3 convolutions of integers by Winograd, of stride and dilation 1: fewer products."""

    outputs: Literal[2, 4] = 2
    """Lines and columns of a tile of outputs, F(2x2, 3x3) or F(4x4, 3x3): 16 products of
    transformed numbers in the place of 36, or 36 in the place of 144."""
    channels: PositiveInt | None = None
    """Channels of one step, in which the products of one tile share `rows` and `depth`; default:
    positions of tiles come one after another, and `rows` are tiles."""
    stored: bool = False
    """Whether memories hold transformed kernels, of 16 (36) numbers in the place of 9, made before
    the network runs; else the engine transforms them on their way in."""


class Matrix(FrozenModel):
    """The matrix engine: a systolic array, or a cube of dot products."""

    kind: Literal["systolic", "cube"]
    """A pipelined array, or dot products that are complete in a cycle."""
    rows: PositiveInt
    """Systolic: reduction (WS, IS) or output pixels (OS). Cube: output pixels."""
    cols: PositiveInt
    """Output channels (systolic IS: output pixels)."""
    depth: PositiveInt = 1
    """Cube only: length of each dot product."""
    dataflow: Literal["weight-stationary", "output-stationary", "input-stationary"] = (
        "weight-stationary"
    )
    """Systolic only: what stays in the cells while the rest streams."""
    fold_overlap: bool = True
    """Systolic only: the next fold is loaded behind the running one."""
    im2col: bool = True
    """Granularity conv: kernel positions and channels share the reduction axis, else positions come
    one after another."""
    overlap: bool = True
    """Whether pixels of the left operand may overlap in memory: then the columns of a kernel row
    join the channels in one reduction where both operands have them side by side."""
    rate: dict[RateType, Annotated[float, Field(gt=0)]] = {"int8": 1.0}
    """MACs per cell and cycle, by element type; a type that is missing is not supported. int16: of
    activations of 16 bits by weights of 8. int8_2of4, fp16_2of4, bf16_2of4: by constant weights of
    which at most two in four along the reduction are not 0, those that are multiplied by 0 counted;
    memories hold two values and their places for four. fp16_mxfp4 and the like (mxfp8, mxfp6,
    mxint8, bfp8; bf16): by constant weights in a microscaling format, 32 of which share a scale, of
    bfp8 16. mxfp4 and the like alone: of activations and weights that are both in it."""
    units: PositiveInt = 1
    """Engines of this kind in each core, all alike, each with a queue of its own; they share the
    work of a tile."""
    startup: Delay = NO_DELAY
    sustained: Share = 1.0
    """Share of its peak that products keep up: bubbles between instructions and folds take the
    rest, so their cycles are divided by it."""
    granularity: Literal["tile", "gemm", "conv"] = "conv"
    """What one instruction covers: an array-sized product, a matrix product, a convolution."""
    max_pixels: PositiveInt | None = None
    """Most output pixels (rows of the left matrix) of one instruction."""
    depthwise: bool = False
    """Whether depthwise convolutions run here, `cols` channels at a time; systolic WS, IS: as many
    as `rows` have room for the kernels of."""
    winograd: Winograd | None = None
    """Cube, granularity conv: how it computes 3 x 3 convolutions with fewer products, where that is
    quicker; default: it does not."""
    writeback: tuple[Writeback, ...] = ()
    """What the engine applies while it writes its result; table: functions of its 8-bit results, of
    which it looks up 256 entries that come with the instruction; add: another tensor, read from
    `local` memory, such as a residual, behind the rounding of integers and before the clip."""
    input: MemoryRole = "local"
    weights: MemoryRole = "local"
    output: MemoryRole = "local"
    """Where results go: `accumulators` leaves the rest to the vector engine unless written back."""

    @property
    def present(self) -> bool:
        """Whether there is an array: it multiplies some type."""
        return bool(self.rate)

    @property
    def cells(self) -> int:
        """Multiply-accumulate units."""
        return self.rows * self.cols * (self.depth if self.kind == "cube" else 1)

    def peak(self, dtype: str) -> float:
        """MACs per cycle for element type `dtype`, those that Winograd saves counted; 0 where it is
        not supported."""
        base, outputs = WINOGRAD.get(dtype, (dtype, None))
        if outputs is not None and (self.winograd is None or self.winograd.outputs != outputs):
            return 0.0
        found = next((r for t, r in self.rate.items() if t == base), 0.0)
        return self.cells * found * winograd_gain(dtype)


NO_ARRAY = Matrix(kind="cube", rows=1, cols=1, rate={})
"""Of a machine whose vector engine multiplies."""


class VectorCost(FrozenModel):
    """Cycles per vector of lanes, by kind of operation."""

    simple: Annotated[float, Field(gt=0)] = 1.0
    """Move, add, subtract, compare, min, max, clip, select, convert."""
    multiply: Annotated[float, Field(gt=0)] = 1.0
    """Multiply and multiply-add."""
    divide: Annotated[float, Field(gt=0)] = 4.0
    """Divide, reciprocal, square root."""
    special: Annotated[float, Field(gt=0)] = 8.0
    """Exponential, logarithm, error function, tanh, sigmoid and what is built on them."""


_COMES_WITH = {"uint16": "int16", "uint32": "int32", "int64": "int32", "uint64": "int32"}
"""Element types that a vector engine has with another: sums, products and comparisons of these are
those of that, without a sign or in two parts."""


LOOKUP = "vector.unary.lookup"
"""Form of a function that is looked up in a table."""


class LaneEngine(FrozenModel):
    """An engine that computes elements side by side, in lanes."""

    lanes: PositiveInt
    """Elements per cycle of a simple operation, for types of up to 2 bytes."""
    wide_lanes: PositiveInt | None = None
    """Elements per cycle when an operand has 4 bytes; default `lanes`."""
    types: tuple[StorageType, ...] = ("int8", "uint8", "int32", "fp16", "fp32")
    """Element types that it reads and writes; with them come bool, as bytes, and unsigned ones of
    16 and 32 bits; with int32 also int64 and uint64, which take two lanes each. Integers among
    themselves are computed exactly, all else in fp32. Of types below a byte two elements share
    one. It makes blocks of mxfp8 and the like of real values, which products read."""
    cost: VectorCost = VectorCost()
    startup: Delay = NO_DELAY
    rank: Annotated[int, Field(ge=1, le=3)] = 3
    """Dimensions that one instruction walks."""
    max_extent: PositiveInt | None = None
    """Most elements along the innermost dimension of one instruction; a longer row without gaps is
    walked as equal rows of at most that many, where `rank` leaves a dimension for them."""
    reads: Roles = ("local",)
    """Memories that its operands may lie in."""
    writes: Roles = ("local",)
    """Memories that its results may go to."""

    def has(self, name: str) -> bool:
        """Whether it reads and writes elements of type `name`, listed or come along with others."""
        return _has(self.types, name)

    def elements(self, itemsize: int) -> float:
        """Elements per cycle of a simple operation whose widest operand has `itemsize` bytes."""
        wide = self.wide_lanes or self.lanes
        if itemsize > 4:
            return wide / 2  # one in a pair of lanes
        return wide if itemsize == 4 else self.lanes


class Vector(LaneEngine):
    """The vector engine: element-wise work, reductions, pooling, conversions."""

    units: PositiveInt = 1
    """Engines of this kind in each core, all alike, each with a queue of its own; they share the
    work of a tile."""
    window: bool = True
    """Pooling and depthwise windows as one instruction; else built from element-wise ones."""
    table: Delay | None = None
    """It looks functions of 8-bit numbers up in a table of 256 8-bit entries, at the cost of a
    simple operation: the time in which the table of an instruction is filled, beside its start-up.
    Default: it has no table."""
    product_rows: Annotated[int, Field(ge=0)] = 0
    """Rows of sums that stay in registers during an instruction of products, and share one read of
    their weights; 0: it has none, products are built from multiply-adds."""

    @property
    def most_elements(self) -> float:
        """Elements per cycle of all engines of a core, of the types that suit them best."""
        return self.units * max(self.elements(1), self.elements(4))


class FunctionEngine(LaneEngine):
    """An engine of each core beside the vector engine, with a queue of its own: special functions,
    activations. What both compute goes to the one that takes fewer cycles for it."""

    forms: Names = ("vector.unary.*",)
    """Forms of the vector engine that it has too, element by element, as names or patterns:
    `vector.unary.exp`, `vector.binary.*`."""

    def has_form(self, form: str) -> bool:
        """Whether it has the form of this name, as far as the whole machine has it; tables are the
        vector engine's."""
        listed = any(fnmatchcase(form, pattern) for pattern in self.forms)
        return listed and form != LOOKUP


def _kind_beside(engine: Any) -> str:
    """Of an engine in `engines`: only arrays say their kind."""
    is_array = isinstance(engine, Matrix) or (isinstance(engine, dict) and "kind" in engine)
    return "<array>" if is_array else "<functions>"


EngineBeside = Annotated[
    Annotated[FunctionEngine, Tag("<functions>")] | Annotated[Matrix, Tag("<array>")],
    Discriminator(_kind_beside),
]
"""A second array, if it says its `kind`; else an engine for functions."""


class FormLimits(FrozenModel):
    """What narrows forms of the vector engine; what is not said is as everywhere on that engine."""

    rank: Annotated[int, Field(ge=1, le=3)] | None = None
    """Dimensions that one such instruction walks; at most `vector.rank`."""
    max_extent: PositiveInt | None = None
    """Most elements along its innermost dimension; at most `vector.max_extent`."""
    cost: Annotated[float, Field(gt=0)] | None = None
    """Cycles per vector of lanes, in the place of its class in `vector.cost`."""


NO_LIMITS = FormLimits()
FORM_LIMITS: dict[str, FormLimits] = Registry("limits of the form", {})
"""By form: what narrows it on whatever machine; those of forms that users add."""


class Isa(FrozenModel):
    """The instruction set, where it differs from what the engines' own fields say."""

    without: Names = ()
    """Forms that the machine lacks (`archgen isa` lists them), as names or patterns:
    `vector.unary.gelu`, `vector.binary.*`. The compiler makes them of others, or asks the host."""
    chains: tuple[Chain, ...] = ()
    """Pairs of functions that the vector engine computes in one instruction, where the second takes
    the first one's result from the lanes: add_mul is (x + y) * z, with which sums get bias and
    scale in one pass. Their cost is that of the dearer of the two."""
    limits: dict[str, FormLimits] = {}
    """Narrower limits and other costs of forms, by name or pattern; of several patterns the last
    one that says something counts."""

    def has(self, form: str) -> bool:
        """Whether the machine has the form of this name, as far as this section says."""
        name = form.rpartition(".")[2]
        if name in CHAINS and name not in self.chains:
            return False
        return not any(fnmatchcase(form, pattern) for pattern in self.without)

    def limits_of(self, form: str) -> FormLimits:
        """What narrows the form of this name."""
        found = FORM_LIMITS.get(form, NO_LIMITS)
        for pattern, limits in self.limits.items():
            if fnmatchcase(form, pattern):
                # Field by field: what a compilation reads of a machine is noted, and a dump is not.
                said = {name: getattr(limits, name) for name in FormLimits.model_fields}
                said = {name: value for name, value in said.items() if value is not None}
                found = found.model_copy(update=said)
        return found


def _has(types: tuple[str, ...], name: str) -> bool:
    """Whether an engine of `types` has elements of type `name`, listed or along with others."""
    return name == "bool" or name in types or _COMES_WITH.get(name) in types


class ScalarCost(FrozenModel):
    """Cycles per element of the scalar unit, by kind of operation: fetch, compute and store it."""

    simple: Annotated[float, Field(gt=0)] = 2.0
    """Move, add, subtract, compare, min, max, clip, select, convert."""
    multiply: Annotated[float, Field(gt=0)] = 4.0
    """Multiply and multiply-add."""
    divide: Annotated[float, Field(gt=0)] = 20.0
    """Divide, reciprocal, square root."""
    special: Annotated[float, Field(gt=0)] = 60.0
    """Exponential, logarithm, error function, tanh, sigmoid and what is built on them."""


class Scalar(FrozenModel):
    """The scalar unit: synchronization and bookkeeping, and element after element what the vector
    engine cannot."""

    startup: Delay = NO_DELAY
    types: tuple[StorageType, ...] = ()
    """Element types that it reads and writes in local memory, arithmetic inside is fp32; none: it
    does not compute."""
    cost: ScalarCost = ScalarCost()

    def has(self, name: str) -> bool:
        """Whether it computes with elements of type `name`, listed or come along with others."""
        return bool(self.types) and _has(self.types, name)


class CopyEngine(FrozenModel):
    """A copy (DMA) engine of each core."""

    from_: Roles = Field(alias="from")
    """Memories it reads."""
    to: Roles
    """Memories it writes."""
    bandwidth: Bandwidth
    """Of the engine itself; memories, links and DRAM may grant less."""
    startup: Delay = NO_DELAY
    """Before a transfer begins."""
    rank: Annotated[int, Field(ge=1, le=4)] = 4
    """Dimensions of a strided transfer."""
    outstanding: PositiveInt = 16
    """Requests in flight; with DRAM latency they bound the rate."""
    request: Bytes = 256
    """Bytes of one request."""
    joins_runs: bool = True
    """A request may ask for several contiguous runs; else each run takes requests of its own."""
    per_request: Delay = NO_DELAY
    """From one request of a transfer to the next."""
    minimum: Delay = NO_DELAY
    """Least time of a transfer behind its start-up."""
    pad: bool = True
    """Fills borders while it copies."""
    widens: tuple[NarrowType, ...] = ()
    """Element types that it makes wider ones of while it copies, without another cycle: memory
    gives the narrow bytes, and the engine's bandwidth is that of the wide ones."""
    indirect: Annotated[float, Field(ge=0)] | None = 4.0
    """Cycles for each row of a transfer whose rows a list of numbers in memory names (gather,
    scatter): to look the number up and to ask for the row; null: it knows no such transfer."""
    broadcast: bool = False
    """One transfer may write the same data to several cores."""
    peer: bool = False
    """Reaches the local memory of other cores."""


_COPY_TIMES = {"bandwidth", "startup", "outstanding", "request", "per_request", "minimum"}
"""Fields that say how long a copy takes, not which ones an engine can do."""


class Link(FrozenModel):
    """A bus or network that copies between two sets of memories cross."""

    from_: Roles = Field(alias="from")
    to: Roles
    bandwidth: Bandwidth
    """Of one instance, or of each link between neighbours, in each direction where it is duplex."""
    latency: Delay = NO_DELAY
    """Added once to every transfer that crosses it; of a mesh, torus or ring for each hop."""
    scope: Literal["chip", "cluster", "core"] = "chip"
    """Of a bus: one instance per chip, per cluster or per core: of who stores, of who receives a
    load, and of both where data goes from core to core."""
    duplex: bool = True
    """Each direction has the full bandwidth; else both share it."""
    topology: Literal["bus", "mesh", "torus", "ring"] = "bus"
    """What lies between the ends: a bus, or links between cores that are neighbours. There a
    transfer goes dimension by dimension, the last of `shape` first, round a torus or a ring the
    shorter way, and a broadcast takes each link once."""
    shape: tuple[PositiveInt, ...] = ()
    """Cores along each dimension of a mesh or torus, `[rows, columns]`, which are numbered along
    the last; a ring has all cores."""
    ports: tuple[NonNegativeInt, ...] = ()
    """Cores of a mesh, torus or ring at which memories that belong to no core join it: DRAM, flash
    and shared memory, whose bytes go over all ports in equal parts."""

    @property
    def span(self) -> Literal["chip", "cluster", "core"]:
        """What has an instance of its own: of a mesh, torus or ring a core has the links to its
        neighbours."""
        return self.scope if self.topology == "bus" else "core"


INSTRUCTION_BYTES = 16
"""Of a machine that says neither a size nor an encoding."""


class FrontEnd(FrozenModel):
    """Fetch and issue of one core's instruction stream."""

    issue_width: PositiveInt = 1
    """Instructions issued per cycle; with `bundle`, words of them."""
    bundle: PositiveInt = 1
    """Most instructions of one word, each for another engine: fetched and issued as one."""
    queue_depth: PositiveInt | dict[str, PositiveInt] = 8
    """Entries of each engine's queue: one number, or by engine name."""
    instruction_bytes: Bytes | None = None
    """Size of one instruction, or with `bundle` of a word, however many are in it, for fetching
    and for the size of programs; default: of each instruction what `encoding` says, 16 B where
    there is none, and a word has the bytes of those in it."""
    fetch_bandwidth: Bandwidth | None = None
    """Default: never a limit."""
    loop_buffer: Bytes | None = None
    """Instructions that are kept: a loop whose body fits in is fetched in its first turn alone.
    Default: none is kept, each turn fetches."""
    sync: Literal["tokens", "interlock"] = "tokens"
    """Who keeps order: semaphores that the compiler places, or hardware that compares operands."""
    tokens: PositiveInt = 64
    """Counting semaphores of a core."""
    signal: Delay = NO_DELAY
    """From an instruction's end until a semaphore of another core has counted it."""

    def depth(self, engine: str) -> int:
        """Queue entries of `engine`."""
        if isinstance(self.queue_depth, int):
            return self.queue_depth
        kind = self.queue_depth.get(engine.rstrip("0123456789"), 8)
        return self.queue_depth.get(engine, kind)


class Encoding(FrozenModel):
    """How the fields of instructions are packed into control words; `{}` is a format of its own.

    Fields are named by their paths (`dst.address.base`, `dst.shape`, and `dst.shape.count` for how
    many there are), which may have wildcards; `opcode` and `engine` begin every command.
    """

    word: Bytes = 4
    """Commands are whole control words of this size, a power of two up to 1 KiB."""
    opcodes: dict[str, NonNegativeInt] = {}
    """Number of an instruction by its mnemonic, and of `loop` and `end`; default: their order."""
    numbers: dict[str, dict[str, NonNegativeInt]] = {}
    """Field -> name -> number, of fields that hold names, such as `function` and `engine`."""
    widths: dict[str, NonNegativeInt] = {}
    """Field -> bits; 0 leaves it out."""
    order: dict[str, Names] = {}
    """Mnemonic -> fields in the order in which they are packed, all others behind them."""


class Host(FrozenModel):
    """The processor that runs what the accelerator cannot. Times without a unit are core cycles of
    the accelerator, as everywhere in the file."""

    compute: Operations = 10e9
    """Sustained operations per second."""
    bandwidth: Bandwidth = Bandwidth(8e9, False)
    """Of what its operators read and write."""
    latency: Delay = Delay.parse("10 us")
    """Cost of each call, from accelerator idle to host running and back."""
    per_inference: Delay = NO_DELAY
    """What the host takes for each inference before the accelerator begins: driver, descriptors,
    inputs; of several in flight it prepares one while others run."""


PEER_TOKENS = 2
"""That each core takes to share a load: its part is there, and it has room for the others'."""


class Arch(FrozenModel):
    """One candidate machine."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str = ""
    clock: Hertz
    """Of cores, on-chip memories and links; all cycles are its cycles."""
    types: tuple[ElementType, ...] = Field(default=("int8",), min_length=1)
    """Element types of whole networks on this machine, the preferred one first."""
    clusters: PositiveInt = 1
    """Groups of cores; with shared memory of level cluster, one for each."""
    cores: PositiveInt = 1
    """Cores in each cluster."""
    memories: Memories
    matrix: Matrix = NO_ARRAY
    """Default: none, the vector engine multiplies."""
    vector: Vector
    isa: Isa = Isa()
    scalar: Scalar = Scalar()
    engines_: dict[str, EngineBeside] = Field({}, alias="engines")
    """Engines of each core beside these, by name: arrays unlike `matrix`, with its fields, and
    engines for functions. Each has a queue of its own."""
    copy_: dict[str, CopyEngine] = Field(alias="copy", min_length=1)
    links: dict[str, Link] = {}
    front_end: FrontEnd = FrontEnd()
    encoding: Encoding | None = None
    """Default: instructions of one size, whatever they hold."""
    host: Host = Host()
    energy: EnergyTable = EnergyTable()
    price: Price | None = None
    """Default: nothing has a price."""
    assumed: dict[str, Interval] = {}
    """Fields whose values nobody has measured, by dotted name, and the range that each lies in:
    `memories.dram.latency: 60 ns .. 200 ns`. A study then says the range of its times. Delays,
    bandwidths and factors of time may be assumed, as a program stays the same with them."""

    @property
    def core_count(self) -> int:
        """Cores on the chip."""
        return self.clusters * self.cores

    @property
    def token_peers(self) -> int:
        """Cores with tokens enough for each other, at most all. Half of the tokens are for the
        engines of a core, unless hardware keeps these in order."""
        tokens = self.front_end.tokens // (2 if self.front_end.sync == "tokens" else 1)
        return min(self.core_count, max(1, tokens // PEER_TOKENS))

    @property
    def dram_peak(self) -> float:
        """Bytes per core-clock cycle at the pins of DRAM."""
        return self.memories.dram.bandwidth.at(self.clock)

    @cached_property
    def far_rates(self) -> dict[str, float]:
        """Bytes per core-clock cycle of long transfers of each memory off chip, in the better
        direction."""
        return {
            role: far.bandwidth.at(self.clock)
            * max(far.efficiency(write=False), far.efficiency(write=True))
            for role, far in self.memories.off_chip().items()
        }

    @property
    def dram_bytes_per_cycle(self) -> float:
        """Bytes per core-clock cycle of long DRAM transfers, in the better direction."""
        return self.far_rates["dram"]

    def far_load(self, role: str, size: Any, runs: Any, *, write: bool) -> Any:
        """Bytes that long transfers in the better direction move in the time which the memory off
        chip in `role` needs for `size` bytes in so many contiguous runs; both may be arrays."""
        far = self.memories.off_chip()[role]
        best = max(far.efficiency(write=False), far.efficiency(write=True))
        slower, run_cost = best / far.efficiency(write=write), far.run_cost.at(self.clock)
        if slower == 1 and not run_cost:
            return size
        return slower * size + runs * (run_cost * self.far_rates[role] / far.channels)

    @cached_property
    def far_latencies(self) -> dict[str, int]:
        """Latency of each memory off chip in cycles."""
        off_chip = self.memories.off_chip()
        return {role: far.latency.cycles(self.clock) for role, far in off_chip.items()}

    @property
    def dram_latency(self) -> int:
        """DRAM latency in cycles."""
        return self.far_latencies["dram"]

    def host_cycles(self, ports: int) -> int:
        """Cycles before the accelerator begins an inference with so many bytes of inputs and
        outputs: what the host does for it, moving these included where there is no DRAM."""
        moved = ports if self.memories.dram.on_chip else 0
        return self.host.per_inference.cycles(self.clock) + self.host_transfer(moved)

    def host_transfer(self, size: int) -> int:
        """Cycles in which so many bytes go from or to the host."""
        return math.ceil(size / self.host.bandwidth.at(self.clock))

    @property
    def constants(self) -> str:
        """Role of the memory in which constants lie."""
        return "dram" if self.memories.flash is None else "flash"

    @property
    def function_engines(self) -> dict[str, FunctionEngine]:
        """Engines for functions beside the vector engine, by name."""
        return {n: each for n, each in self.engines_.items() if isinstance(each, FunctionEngine)}

    @property
    def arrays(self) -> dict[str, Matrix]:
        """Matrix engines that are unlike, by name: `matrix`, where there is one, comes first."""
        beside = {n: each for n, each in self.engines_.items() if isinstance(each, Matrix)}
        return ({"matrix": self.matrix} if self.matrix.present else {}) | beside

    def array(self, engine: str) -> Matrix:
        """The array whose unit has this engine name: small1 is the second one of `small`."""
        beside = self.engines_.get(engine) or self.engines_.get(engine.rstrip("0123456789"))
        return beside if isinstance(beside, Matrix) else self.matrix

    def with_array(self, name: str) -> Arch:
        """This machine as a layer sees it whose products run on the array of this name: it is the
        `matrix` there."""
        if name == "matrix" or self.matrix is self.engines_[name]:
            return self
        views = self.__dict__.get("_views")
        if views is None or views.whole is not self:  # a copy has what its original had
            views = self.__dict__["_views"] = ArrayViews(self)
        found: Arch = views.of(name)
        return found

    def peak_macs(self, dtype: str) -> float:
        """MACs per cycle of the whole chip for element type `dtype`."""
        if not self.matrix.present and dtype not in WINOGRAD:
            wide = dtype == "fp32" or not self.vector.product_rows
            lanes = self.vector.elements(4 if wide else 2)
            rate = lanes / self.factor("vector.product", "multiply")
            return self.core_count * self.vector.units * rate
        return self.core_count * sum(each.units * each.peak(dtype) for each in self.arrays.values())

    def units(self, kind: str) -> tuple[str, ...]:
        """Names of the engines of a kind in one core: vector, vector1, vector2."""
        counts = {"matrix": self.matrix.units, "vector": self.vector.units}
        beside = self.engines_.get(kind)
        count = beside.units if isinstance(beside, Matrix) else counts.get(kind, 1)
        return (kind, *(f"{kind}{number}" for number in range(1, count)))

    @property
    def multiplier(self) -> str:
        """Kind of the engine that is there for products."""
        return "matrix" if self.matrix.present else "vector"

    def lane_engine(self, name: str) -> LaneEngine:
        """The engine of this name that runs vector instructions."""
        found = self.engines_.get(name)
        return found if isinstance(found, LaneEngine) else self.vector

    def reach(self, form: str, engine: str = "vector") -> tuple[int, int | None]:
        """Dimensions that one instruction of this form walks on `engine`, and the most elements
        along the innermost one."""
        own = self.lane_engine(engine)
        limits, rank, extent = self.isa.limits_of(form), own.rank, own.max_extent
        if form.startswith("scalar."):  # loops of its own, as deep as any vector engine's
            rank, extent = 3, None
        extents = [each for each in (extent, limits.max_extent) if each is not None]
        return min(rank, limits.rank or rank), min(extents, default=None)

    def vector_startup(self, form: str, engine: str = "vector") -> int:
        """Cycles of an engine of lanes before a vector instruction of this form begins."""
        table = self.vector.table if form == LOOKUP else None
        own = self.lane_engine(engine).startup.cycles(self.clock)
        return own + (table or NO_DELAY).cycles(self.clock)

    def factor(self, form: str, cost: str, engine: str = "vector") -> float:
        """Cycles per vector of lanes of a vector instruction of this form, of cost class `cost`, on
        `engine`; per element of the scalar unit's."""
        costs = self.lane_engine(engine).cost
        own = None if engine in self.engines_ else self.isa.limits_of(form).cost
        by_class: float = getattr(self.scalar.cost if form.startswith("scalar.") else costs, cost)
        return by_class if own is None else own

    def grid(self, link: Link) -> Grid | None:
        """The cores as a mesh, torus or ring joins them; None of a bus."""
        if link.topology == "bus":
            return None
        shape = link.shape if link.topology != "ring" else (self.core_count,)
        return Grid(shape, link.topology != "mesh", link.ports)

    def scopes(self, scope: Literal["chip", "cluster", "core"]) -> int:
        """How many of its kind the chip has: itself, its clusters or its cores."""
        return {"chip": 1, "cluster": self.clusters, "core": self.core_count}[scope]

    def instances(self, role: str) -> int:
        """How many memories of this role the chip has."""
        shared = self.memories.shared
        if role in OFF_CHIP:
            return 1
        return self.core_count if role != "shared" else self.scopes(shared.level) if shared else 1

    def copy_engine(self, source: str, target: str) -> str | None:
        """Name of the quickest copy engine, of equals the first, that moves data from role `source`
        to role `target`."""
        able = [n for n, e in self.copy_.items() if source in e.from_ and target in e.to]
        return self._quickest_first(able)[0] if able else None

    def copy_engines_like(self, name: str) -> list[str]:
        """Copy engines that do what one does in whatever time, the quickest first."""
        abilities = [each for each in CopyEngine.model_fields if each not in _COPY_TIMES]
        able = {n: [getattr(e, each) for each in abilities] for n, e in self.copy_.items()}
        return self._quickest_first([n for n, can in able.items() if can == able[name]])

    def _quickest_first(self, names: list[str]) -> list[str]:
        if not names[1:]:  # nobody has asked for bandwidths then
            return names
        return sorted(names, key=lambda name: -self.copy_[name].bandwidth.at(self.clock))

    def engines(self) -> tuple[str, ...]:
        """Engine names of one core, in the order in which reports list them."""
        arrays = (unit for name in self.arrays for unit in self.units(name))
        lanes = *self.units("vector"), *self.function_engines
        return (*arrays, *lanes, "scalar", *self.copy_)
