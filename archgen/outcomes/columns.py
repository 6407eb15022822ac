"""Every column of the frames that a study returns: its unit and its meaning, defined once.

The one idea: a name with `<memory>`, `<cause>` or `<engine>` stands for a family of columns, one
for each memory, cause or engine that the machines of the study have. `archgen explain columns`
prints this page, and a test compares it with real frames.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_PLACEHOLDER = re.compile(r"<[a-z]+>")


@dataclass(frozen=True)
class Column:
    """A column, or with a `<placeholder>` a family of columns."""

    name: str
    kind: str
    """Type of its values: text, whole, real, truth; any: real where all are numbers, else text.
    Any of them may be missing."""
    unit: str
    meaning: str

    def matches(self, name: str) -> bool:
        """Whether `name` is this column or belongs to this family."""
        # A model's file may call a dimension anything.
        held = ".+" if self.name.endswith("<dimension>") else "[A-Za-z0-9_.-]+"
        pattern = held.join(re.escape(part) for part in _PLACEHOLDER.split(self.name))
        return re.fullmatch(pattern, name) is not None


_SCHEDULING = (
    Column("fusion", "text", "", "how layers were grouped: none, line, branch, branchx, optimal"),
    Column("halo", "text", "", "what neighbouring tiles share: auto, rolling, recompute"),
    Column("objective", "text", "", "what schedules were compared by: latency, throughput, ..."),
    Column("effort", "whole", "", "how long the compiler searched: 0 to 3"),
    Column("pass.<option>", "any", "", "an option of a compiler pass that the study sets"),
    Column(
        "arch.<field>",
        "any",
        "",
        "a field of the architecture that the study sweeps, of every machine that has it: bytes, "
        "hertz; bandwidths and delays by seconds where any is, else by cycles",
    ),
)
_IDENTITY = (
    Column("arch", "text", "", "name of the architecture"),
    Column("family", "text", "", "the machine that it is a variant of; its own name: of none"),
    Column("model", "text", "", "the model as it was asked for: zoo name or file"),
    Column("batch", "whole", "samples", "samples in one inference"),
    Column("dtype", "text", "", "element type of the compiled network"),
    Column("dim.<dimension>", "whole", "elements", "size of a free input dimension, if it has it"),
    Column("bucket.<dimension>", "text", "", "range of sizes that its program takes, where given"),
    Column(
        "model.<option>",
        "any",
        "",
        "an option of a network of the zoo that the study gives several values, for all networks "
        "that have it",
    ),
    *_SCHEDULING,
)
_ENERGY = (
    Column("energy_mj", "real", "mJ", "energy of the run, DRAM included and the host left out"),
    Column("energy_low_mj", "real", "mJ", "the same with every figure at the low end of its range"),
    Column("energy_high_mj", "real", "mJ", "... and at the high end"),
    Column(
        "energy_<component>_mj",
        "real",
        "mJ",
        "mac, vector, each memory, link, instruction, leakage: together energy_mj",
    ),
    Column("average_w", "real", "W", "energy_mj / latency_ms"),
    Column("tops_per_w", "real", "TOPS/W", "2 x macs / energy_mj"),
    Column("area_mm2", "real", "mm2", "area of the chip, with its interface to DRAM"),
    Column("area_low_mm2", "real", "mm2", "the same with every figure at the low end of its range"),
    Column("area_high_mm2", "real", "mm2", "... and at the high end"),
    Column("core_mm2", "real", "mm2", "area of the chip without its interface to DRAM"),
    Column(
        "area_<component>_mm2",
        "real",
        "mm2",
        "mac, vector, scalar, each memory on the chip, copy, link, front_end, dram (its interface "
        "on the chip), other (clock, wires, space), extra (what the file adds): together area_mm2",
    ),
)
_MERIT = (
    Column("throughput_per_mm2", "real", "samples/s/mm2", "throughput_ips / area_mm2"),
    Column("throughput_low_per_mm2", "real", "samples/s/mm2", "throughput_ips / area_high_mm2"),
    Column("throughput_high_per_mm2", "real", "samples/s/mm2", "throughput_ips / area_low_mm2"),
    Column("tops_per_mm2", "real", "TOPS/mm2", "2 x macs / latency_ms / area_mm2: what a run "
           "reached, not the peak"),
    Column("latency_area", "real", "ms mm2", "latency_ms x area_mm2"),
    Column("throughput_per_watt", "real", "samples/s/W", "throughput_ips / average_w"),
)  # fmt: skip
"""What `archgen.outcomes.rows` makes of the others."""
COLUMNS = (
    *_IDENTITY,
    Column(
        "status",
        "text",
        "",
        "ok, does_not_fit, unsupported (both are answers, see reason), failed, or estimated: "
        "priced without a program (--estimate)",
    ),
    Column("latency_cycles", "whole", "cycles", "first fetch to last result in DRAM, simulated"),
    Column("latency_ms", "real", "ms", "latency_cycles at the architecture's clock"),
    Column(
        "estimated_ms",
        "real",
        "ms",
        "latency_ms as it was estimated before the point was run (--estimate --best)",
    ),
    Column(
        "chosen_as",
        "text",
        "",
        "why it was run (--estimate --best): the fastest, a point of the front of latency and "
        "area, or next, as the front had too few",
    ),
    Column("throughput_ips", "real", "samples/s", "batch / latency"),
    Column(
        "macs",
        "whole",
        "MACs",
        "multiply-accumulates that the model's outputs take, padding excluded",
    ),
    Column(
        "executed_macs",
        "whole",
        "MACs",
        "multiply-accumulates executed; beyond macs: what no output takes, or the same again",
    ),
    Column(
        "matrix_utilization",
        "real",
        "fraction",
        "macs of the matrix engines / (latency_cycles x peak MACs per cycle of all cores)",
    ),
    Column(
        "roofline_cycles",
        "whole",
        "cycles",
        "lower bound: the longer of macs of the matrix engines at peak rate and the DRAM traffic "
        "that outputs take at peak bandwidth",
    ),
    Column("efficiency", "real", "fraction", "roofline_cycles / latency_cycles"),
    Column("bound", "text", "", "which side of the roofline is the longer: compute or bandwidth"),
    Column(
        "compulsory_bytes",
        "whole",
        "bytes",
        "constants and inputs that outputs take, and outputs, once each",
    ),
    Column(
        "bound_cycles",
        "whole",
        "cycles",
        "lower bound that knows the machine: the longest of exact array cycles, vector work, "
        "compulsory DRAM bytes, weights through the room on chip, and calls of the host",
    ),
    Column(
        "bound_by",
        "text",
        "",
        "which of these it is: matrix, vector, bandwidth, weights or host",
    ),
    Column("of_bound", "real", "fraction", "bound_cycles / latency_cycles"),
    Column(
        "held_by",
        "text",
        "",
        "what held the run up: bound_by, where of_bound is no less than the largest stall_<cause> "
        "or work_<part> beyond it; else that",
    ),
    Column("dram_read_bytes", "whole", "bytes", "bytes read from DRAM, bursts included"),
    Column("dram_write_bytes", "whole", "bytes", "bytes written to DRAM, bursts included"),
    Column(
        "copied_<engine>_bytes",
        "whole",
        "bytes",
        "bytes that this copy engine of all cores delivered: of a broadcast to each target",
    ),
    Column(
        "link_<name>_bytes",
        "whole",
        "bytes",
        "bytes that crossed that link: of a broadcast once for each of its instances",
    ),
    Column(
        "peak_<memory>_bytes",
        "whole",
        "bytes",
        "most bytes alive at once, worst core",
    ),
    Column(
        "working_set_bytes",
        "whole",
        "bytes",
        "most bytes of results of layers that are alive at once, in the order of layers that needs "
        "least, in this machine's types. With a third more on chip for it, all cores together, a "
        "schedule layer by layer spills nothing; layers that share tiles get by with less. "
        "Constants and inputs come from DRAM anyway and are not in it",
    ),
    Column("instructions", "whole", "instructions", "instructions executed by all cores"),
    Column("program_bytes", "whole", "bytes", "size of the encoded instruction streams"),
    Column(
        "matrix_busy",
        "real",
        "fraction",
        "share of the matrix engines' time spent executing; with all stall_<cause> it adds up "
        "to 1, or all are 0 where the program has no instructions",
    ),
    Column(
        "stall_<cause>",
        "real",
        "fraction",
        "share of the matrix engines' time idle for that cause (see explain stalls)",
    ),
    Column(
        "work_<part>",
        "real",
        "fraction",
        "share of the matrix engines' time spent on products, products_again (what several tiles "
        "compute each for itself), padding (positions without work, filling, draining) and "
        "start_ups: together matrix_busy",
    ),
    Column(
        "moved_<part>",
        "real",
        "fraction",
        "share of DRAM's time at its peak rate for compulsory bytes, again (loaded or spilled more "
        "than once, bursts not used whole) and idle: together 1",
    ),
    Column("host_ops", "whole", "operators", "operators left to the host processor"),
    *_ENERGY,
    *_MERIT,
    Column(
        "verified",
        "truth",
        "",
        "whether the executed instructions gave the reference's outputs; missing: not checked, as "
        "nothing was executed or an output could have been anything",
    ),
    Column(
        "compared",
        "whole",
        "values",
        "results that were compared, each with what the reference makes of the same inputs",
    ),
    Column(
        "unchecked",
        "whole",
        "values",
        "of these, how many could have been anything: what their operators round excuses it",
    ),
    Column(
        "operator_error",
        "real",
        "fraction",
        "largest difference of an element, as a fraction of what its operators' roundings excuse "
        "there; above 1 is wrong",
    ),
    Column("max_step_error", "real", "steps", "largest difference in an integer result"),
    Column(
        "max_abs_error",
        "real",
        "output units",
        "largest difference of an output from a run of the whole reference; not judged",
    ),
    Column(
        "quantization_error",
        "real",
        "fraction",
        "how far the outputs are from those of the network before it was quantized: the norm of "
        "the difference over the norm, the largest of any output; missing: not int8, or given "
        "quantized",
    ),
    Column(
        "tolerance",
        "real",
        "output units",
        "excused at the element of an output that comes nearest to it",
    ),
    Column(
        "compile_s",
        "real",
        "s",
        "wall-clock time of compiling for the machine, of proving the programs valid, and of "
        "simulating those that are tried",
    ),
    Column("verify_s", "real", "s", "wall-clock time of executing the instructions and comparing"),
    Column("simulate_s", "real", "s", "wall-clock time of the event simulation"),
    Column(
        "schedule_from",
        "text",
        "",
        "the machine with no more hardware whose schedule was quicker here than the point's own; "
        "missing: its own (--isolated: always)",
    ),
    Column("note", "text", "", "what to know about the numbers: calibration, weak comparisons"),
    Column("reason", "text", "", "why there is no result: the sum that does not fit, the operator"),
)
"""The frame of `Study.frame`: one row for each point."""

LAYER_COLUMNS = (
    *_IDENTITY,
    Column("node", "text", "", "ONNX node or nodes that the instructions come from"),
    Column("operator", "text", "", "operator type"),
    Column("group", "whole", "", "index of the group of layers that share a tile loop"),
    Column("start_cycle", "whole", "cycles", "when its first instruction starts"),
    Column("end_cycle", "whole", "cycles", "when its last instruction ends"),
    Column("macs", "whole", "MACs", "multiply-accumulates executed, padding excluded"),
    Column("instructions", "whole", "instructions", "instructions executed by all cores"),
    Column("energy_mj", "real", "mJ", "energy of its own work; leakage belongs to the whole run"),
    Column("busy_<engine>_cycles", "whole", "cycles", "cycles that engine works for it, all cores"),
    Column("<memory>_read_bytes", "whole", "bytes", "bytes read from that memory, all cores"),
    Column("<memory>_write_bytes", "whole", "bytes", "bytes written to that memory, all cores"),
    Column(
        "stall_<cause>_cycles",
        "whole",
        "cycles",
        "idle cycles by cause of all engines whose next or running instruction was its own",
    ),
)
"""The frame of `Study.layers`: one row for each node of each point."""
MORE_IS_BETTER = frozenset(
    {
        "throughput_ips",
        "efficiency",
        "of_bound",
        "matrix_utilization",
        "matrix_busy",
        "tops_per_w",
        "throughput_per_mm2",
        "throughput_low_per_mm2",
        "throughput_high_per_mm2",
        "tops_per_mm2",
        "throughput_per_watt",
    }
)
"""Figures of points of which more is better; of all others less is."""

SPAN_COLUMNS = (
    *_IDENTITY,
    Column("core", "whole", "", "number of the core on the chip; -1: the host"),
    Column("engine", "text", "", "the engine that worked"),
    Column("group", "whole", "", "index of the group of layers that share a tile loop"),
    Column("node", "text", "", "ONNX node or nodes that the instructions come from"),
    Column("start_cycle", "whole", "cycles", "when the first of the instructions starts"),
    Column("end_cycle", "whole", "cycles", "when the last of them ends"),
    Column("instructions", "whole", "instructions", "how many they are"),
)
"""The frame of `Study.spans`: one row for each stretch of instructions of one node on one engine,
pauses shorter than latency / 2000 bridged."""

LEVEL_COLUMNS = (
    *_IDENTITY,
    Column(
        "kind",
        "text",
        "",
        "occupancy (most bytes taken in the bin by the groups that then run), bandwidth (mean "
        "bytes per cycle) or busy (mean share of the engine's time spent executing)",
    ),
    Column(
        "name",
        "text",
        "",
        "occupancy: the memory, for those of cores that of the core with the highest peak, and its "
        "banks (local.bank3) where each is a range of its own; bandwidth: memory and direction "
        "(dram.read) or link (link.noc), all cores; busy: core and engine (core0.matrix, host)",
    ),
    Column("cycle", "whole", "cycles", "start of the bin; it ends where the next one starts"),
    Column("value", "real", "by kind", "bytes, bytes per cycle, or fraction"),
)
"""The frame of `Study.levels`: about 400 bins of equal length for each kind and name of a point."""


COMMAND_COLUMNS = (
    Column("core", "whole", "", "number of the core on the chip; -1: the host"),
    Column("engine", "text", "", "the engine; with the core it names the queue"),
    Column("position", "whole", "", "place in the queue, of the first where there are several"),
    Column("node", "text", "", "ONNX node or nodes that it is for"),
    Column("operator", "text", "", "operator type"),
    Column("group", "whole", "", "index of the group of layers that share a tile loop"),
    Column("layer", "text", "", "first node of the layer whose tile it is for; missing: of none"),
    Column(
        "tile",
        "text",
        "",
        "number of the tile in each loop over tiles, outermost first (2.0), of the first where "
        "there are several; empty: the layer as a whole",
    ),
    Column("tiles", "text", "", "how many tiles each of these loops has (7.3)"),
    Column(
        "kind",
        "text",
        "",
        "first, last: like no other tile of the loops that cut the layer; steady: one of several "
        "that are alike, or between; only: there is no other; as the compiler cut it",
    ),
    Column("kinds", "text", "", "the same for each of these loops (steady.first)"),
    Column("sizes", "text", "elements", "extents of the tile: of what it is of the layer's result"),
    Column("opcode", "text", "", "mnemonic of the instruction"),
    Column("form", "text", "", "form of it (archgen isa)"),
    Column("times", "whole", "commands", "how many commands the row stands for"),
    Column("loops", "text", "", "hardware loops around it with their turns, outermost first"),
    Column("control", "text", "", "its fields as assembly spells them"),
    Column(
        "words",
        "text",
        "bytes, elements",
        "control words as JSON: field -> value; of an operand memory, address and strides in bytes "
        "and shape in elements",
    ),
    Column(
        "packed",
        "text",
        "",
        "control words as the machine packs them (section encoding, else derived), in hexadecimal, "
        "first byte first; missing: no machine, or its fields do not hold all values",
    ),
    Column(
        "steps",
        "text",
        "bytes",
        "JSON: operand -> loop -> what each turn adds to its address; `ring`: slots in turn",
    ),
    Column("waits", "text", "", "tokens that it takes before it starts (JSON: name -> count)"),
    Column("signals", "text", "", "tokens that it gives when it has ended"),
    Column("notifies", "text", "", "tokens of other cores: JSON rows of name, count, cores"),
    Column("start_cycle", "whole", "cycles", "when the first starts, simulated"),
    Column("end_cycle", "whole", "cycles", "when the first ends"),
    Column(
        "producer",
        "whole",
        "",
        "row of the command whose write of what the first reads ended last; missing: what it reads "
        "was there before",
    ),
    Column("interval_cycles", "whole", "cycles", "from the end of that to the start of the first"),
    Column("least_interval_cycles", "whole", "cycles", "the shortest such time of all of the row"),
)
"""The frame of `archgen.commands`: one row for each command of a tile, or for all that loops make
of one. Times and producers are known where a machine is given."""


def column(name: str, columns: Iterable[Column] = COLUMNS) -> Column | None:
    """The definition that `name` falls under, exact names before families; None where undefined."""
    known = tuple(columns)
    exact = next((column for column in known if column.name == name), None)
    return exact or next((column for column in known if column.matches(name)), None)


def ordered(names: Iterable[str], columns: tuple[Column, ...] = COLUMNS) -> list[str]:
    """Defined columns in the order of their definitions, families in order of appearance.

    Columns without `<placeholder>` are always there. Raises KeyError for an undefined name.
    """
    families: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        found = column(name, columns)
        if found is None:
            raise KeyError(f"column {name!r} is not defined in archgen/outcomes/columns.py")
        families.setdefault(found.name, []).append(name)
    result: list[str] = []
    for known in columns:
        result += families.get(known.name, [] if "<" in known.name else [known.name])
    return result
