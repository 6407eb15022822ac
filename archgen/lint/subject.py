"""What rules look at: one machine, and the figures that follow from its file.

The one idea: an expression of a rule names a figure of `LintedMachine`, or a field of the file.
What an array is worth, the product shows that suits it best.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from archgen.energy import EnergyCosts, costs_of
from archgen.energy.area import instruction_bytes
from archgen.energy.ranges import UncertainValue, at_node
from archgen.energy.table import Speed, shipped_table
from archgen.lint.rules import Chip, DramKind, published_chips
from archgen.schema.rewritten import Peaks, peaks
from simmodel.arch.element_types import accumulator_of, size_of
from simmodel.arch.matrix_cycles import product_cycles, streams, tile_limits
from simmodel.arch.memories import Memory
from simmodel.arch.record import Arch, CopyEngine, Link, Matrix
from simmodel.arch.units import Delay, show_bytes

REALS = ("fp32", "fp16", "bf16")


@dataclass(frozen=True)
class PathEnd:
    """Where a copy engine or a link begins or ends on the chip."""

    rate: float
    """B/cycle of what ends there."""
    widest: str
    """Its memory that carries most."""
    carried: float
    """B/cycle of what it reads or writes there."""
    way: str
    """`read` or `written`."""


# The product that suits an array best, as one instruction: its cycles and the bytes that it moves.

_FOLDS = 8
"""Times the array's own extent that channels have, where one instruction may cover that."""
_PIXELS = 4096
_KERNEL = 9
"""Kernel positions of a convolution that reads each input once."""


@dataclass(frozen=True)
class ArrayProduct:
    """M x K times K x N, at `positions` kernel positions."""

    arch: Arch
    m: int
    n: int
    k: int
    positions: int = 1

    @property
    def itemsize(self) -> int:
        """Bytes of an operand's element."""
        return size_of(self.arch.types[0])

    @property
    def row_of_sums(self) -> int:
        """Bytes of the sums of one output pixel."""
        return self.n * size_of(accumulator_of(self.arch.types[0]))

    @property
    def cycles(self) -> int:
        """Of the array, right behind another such product."""
        matrix, dtype = self.arch.matrix, self.arch.types[0]
        return int(
            product_cycles(matrix, dtype, self.m, self.n, self.k, self.positions, behind=True)
        )

    @property
    def results(self) -> int:
        """Bytes of the result, as it is written."""
        direct = self.arch.matrix.output == "local" and "requantize" in self.arch.matrix.writeback
        return self.m * self.n * self.itemsize if direct else self.m * self.row_of_sums

    def traffic(self) -> Mapping[str, tuple[int, int]]:
        """Bytes read and written by memory; inputs once for each kernel position that joins no
        other, as the machine charges them."""
        matrix, read, written = self.arch.matrix, Counter[str](), Counter[str]()
        left, right = streams(matrix, self.m, self.n, self.k * self.positions)
        read[matrix.input] = self.m * self.k * self.itemsize * int(left)
        read[matrix.weights] += self.k * self.n * self.positions * self.itemsize * int(right)
        written[matrix.output] = self.results
        if matrix.granularity == "tile":  # sums of the channels before
            read[matrix.output] += self.m * self.row_of_sums
            written[matrix.output] = self.m * self.row_of_sums
        return {role: (read[role], written[role]) for role in {**read, **written}}

    def waits(self) -> Mapping[str, float]:
        """Cycles that the ports of each memory need for it."""
        found = {}
        for role, (read, written) in self.traffic().items():
            memory = self.arch.memories.on_chip()[role]
            ways = (read / memory.bytes_per_cycle(), written / memory.bytes_per_cycle(True))
            both = (read + written) / memory.bytes_per_cycle()
            found[role] = max(ways) if memory.split_ports else both
        return found


@dataclass(frozen=True)
class LintedMachine:
    """One machine and what follows from its file."""

    arch: Arch

    # The chip as a whole, and published ones beside it.

    @cached_property
    def peaks(self) -> Peaks:
        """What it could do at best."""
        return peaks(self.arch)

    @cached_property
    def costs(self) -> EnergyCosts:
        """Energies and areas, by the table and what the file states."""
        energy = self.arch.energy.model_copy(update={"source": "table"})
        return costs_of(self.arch.model_copy(update={"energy": energy}))

    @property
    def macs(self) -> float:
        """Of the preferred type in a cycle, whole chip."""
        return self.arch.peak_macs(self.arch.types[0])

    @property
    def tops(self) -> float:
        """Tera-operations per second of the preferred type; a multiply-accumulate counts two."""
        return 2e-12 * self.macs * self.arch.clock

    @property
    def chips(self) -> Collection[Chip]:
        """Those that are published."""
        return published_chips().chips.values()

    def most(self, figure: str, sram: float | None = None) -> Chip:
        """The published chip of which `figure` is largest, of those with up to `sram` bytes."""
        return max(self.chips, key=lambda chip: chip.figure(figure, sram) or -1)

    def least(self, figure: str) -> Chip:
        """The published chip of which `figure` is smallest."""
        return min(self.chips, key=lambda chip: chip.figure(figure) or math.inf)

    @property
    def nearest(self) -> str:
        """The published chip whose peak is nearest."""
        tops = max(self.tops, 1e-9)
        return min(self.chips, key=lambda c: max(c.tops, tops) / min(c.tops, tops)).cited()

    @property
    def dram_kind(self) -> DramKind | None:
        """The most that is known of the kind of DRAM."""
        return published_chips().dram.get(self.arch.energy.dram)

    @property
    def same_node(self) -> str:
        """The chip of the technology that is nearest."""
        node = self.arch.energy.node
        chip = min(self.chips, key=lambda c: abs(c.node - node) if c.node else math.inf)
        return f"{chip.cited()}: {chip.clock / 1e9:g} GHz at {chip.node:g} nm"

    @property
    def speed(self) -> Speed:
        """How quick logic is."""
        return shipped_table().speed

    @property
    def nominal_voltage(self) -> float:
        """V, of the technology."""
        return at_node(shipped_table().voltage.points, self.arch.energy.node)

    @property
    def largest_part(self) -> str:
        """The part with most area."""
        parts = self.costs.area.parts
        return max(parts, key=lambda name: parts[name].value)

    @property
    def largest_part_field(self) -> str:
        """The field that says how large that is."""
        fields = {"mac": "matrix.cols", "vector": "vector.lanes", "other": "energy"}
        return fields.get(self.largest_part, f"memories.{self.largest_part}.size")

    @cached_property
    def tabled(self) -> Mapping[str, UncertainValue]:
        """Energies by the fields that may state them, by the table alone."""
        given = self.arch.energy
        kept = {name: getattr(given, name) for name in ("node", "voltage", "dram")}
        return costs_of(self.arch.model_copy(update={"energy": type(given)(**kept)})).by_field

    @staticmethod
    def energy_unit(field: str) -> str:
        """What a field states an energy in."""
        if field.endswith(".leakage"):
            return "mW"
        return "pJ/B" if field.split(".")[1] in ("memories", "links") else "pJ"

    # Memories, and what moves data between them.

    @property
    def on_chip(self) -> Mapping[str, Memory]:
        return self.arch.memories.on_chip()

    @property
    def role_bytes(self) -> Mapping[str, int]:
        """Bytes of all memories of a role."""
        return {role: each.size * self.arch.instances(role) for role, each in self.on_chip.items()}

    def carried(self, role: str, write: bool = False) -> float:
        """Bytes per cycle of one instance of a memory; of the whole chip off chip."""
        memory = self.arch.memories.get(role)
        if isinstance(memory, Memory):
            return memory.bytes_per_cycle(write)
        return self.arch.far_rates[role]

    def readers(self, role: str) -> int:
        """Engines that read a memory; sums that are written back by the array are read by it."""
        arrays = sum(
            role in (each.input, each.weights) or (role == each.output and bool(each.writeback))
            for each in self.arch.arrays.values()
        )
        copies = sum(role in engine.from_ for engine in self.arch.copy_.values())
        return copies + (role in self.arch.vector.reads) + arrays

    def port_bytes(self, role: str) -> str:
        """What the ports of a memory carry, in words."""
        memory = self.on_chip[role]
        read, written = memory.bytes_per_cycle(), memory.bytes_per_cycle(True)
        if memory.split_ports:
            return f"{read:,} B/cycle to read, {written:,} to write"
        return f"{read:,} B/cycle for both"

    def copy_engines(self, trait: str) -> int:
        """How many have a trait."""
        return sum(getattr(engine, trait) for engine in self.arch.copy_.values())

    @property
    def copy_routes(self) -> dict[str, list[str]]:
        """Copy engine -> those that programs use on its ways from one end to another."""
        arch = self.arch
        return {
            name: [
                used
                for source in engine.from_ for target in engine.to
                for used in arch.copy_engines_like(str(arch.copy_engine(source, target)))
            ]
            for name, engine in arch.copy_.items()
        }  # fmt: skip

    @property
    def copy_ends(self) -> list[tuple[str, PathEnd]]:
        movers = self.arch.copy_.items()
        return [(name, end) for name, mover in movers for end in self._ends(mover, None)]

    @property
    def link_ends(self) -> list[tuple[str, PathEnd]]:
        """Ends on the chip of each link, with all memories that share an instance of it."""
        return [
            (name, end)
            for name, link in self.arch.links.items()
            for end in self._ends(link, self.arch.scopes(link.span))
        ]

    def _ends(self, mover: CopyEngine | Link, sharing: int | None) -> Iterator[PathEnd]:
        """Of so many instances that memories are `sharing`, all of them; else of the widest."""
        for roles, write, way in ((mover.from_, False, "read"), (mover.to, True, "written")):
            each = {role: self.carried(role, write) for role in roles}
            if sharing is not None:
                each = {
                    r: own * max(1, self.arch.instances(r) // sharing) for r, own in each.items()
                }
            widest = max(each, key=lambda role: each[role])
            carried = each[widest] if sharing is None else sum(each.values())
            if not self.arch.far_rates.keys() & {*roles}:
                yield PathEnd(mover.bandwidth.at(self.arch.clock), widest, carried, way)

    def crossings(self, link: Link) -> int:
        """Copy engines that cross a link."""
        return sum(
            bool(set(engine.from_) & set(link.from_) and set(engine.to) & set(link.to))
            for engine in self.arch.copy_.values()
        )

    def far_moved(self, far: str) -> float:
        """Bytes per cycle that the copy engines of all cores move from and to a memory off chip at
        most."""
        links = self.arch.links.values()
        total = 0.0
        for engine in self.arch.copy_.values():
            own = engine.bandwidth.at(self.arch.clock) * self.arch.core_count
            ways = [(source, target) for source in engine.from_ for target in engine.to]
            rates = (
                min([own] + [link.bandwidth.at(self.arch.clock) * self.arch.scopes(link.span)
                             for link in links if source in link.from_ and target in link.to])
                for source, target in ways if far in (source, target)
            )  # fmt: skip
            total += max(rates, default=0.0)
        return total

    @property
    def bursts(self) -> Mapping[str, int]:
        """Bytes that go at once, by field."""
        requests = {f"copy.{name}.request": each.request for name, each in self.arch.copy_.items()}
        off_chip = self.arch.memories.off_chip().items()
        return {**{f"memories.{role}.burst": far.burst for role, far in off_chip}, **requests}

    # Engines that compute.

    @property
    def array_limits(self) -> tuple[int, int]:
        """Reduction and output channels that fill the array; of types that share cells, more."""
        deep, wide = tile_limits(self.arch.matrix)
        rate = next((r for t, r in self.arch.matrix.rate.items() if t == self.arch.types[0]), 1.0)
        return int(deep * max(rate, 1.0)), wide

    @property
    def least_product(self) -> ArrayProduct:
        """The smallest that has every cell of the array busy."""
        matrix, (deep, wide) = self.arch.matrix, self.array_limits
        still = matrix.kind == "systolic" and matrix.dataflow == "output-stationary"
        shift = matrix.rows if still or matrix.kind == "cube" else wide
        return ArrayProduct(self.arch, shift, wide, deep)

    @property
    def best_product(self) -> ArrayProduct:
        """The one with most reuse that one instruction covers, as far as there is room for its
        sums."""
        matrix, (deep, wide) = self.arch.matrix, self.array_limits
        row = wide * size_of(accumulator_of(self.arch.types[0]))
        sums = self.on_chip[matrix.output].size // 2
        pixels = max(1, min(_PIXELS, matrix.max_pixels or _PIXELS, sums // row))
        if matrix.granularity == "tile":
            return ArrayProduct(self.arch, pixels, wide, deep)
        positions = _KERNEL if matrix.granularity == "conv" else 1
        return ArrayProduct(self.arch, pixels, wide * _FOLDS, deep * _FOLDS, positions)

    @property
    def tile_operands(self) -> Mapping[str, Mapping[str, int]]:
        """Bytes of an array-sized product, by memory and by what they are."""
        matrix, found = self.arch.matrix, dict[str, dict[str, int]]()
        if matrix.present:
            one = self.least_product
            found.setdefault(matrix.input, {})["inputs"] = one.m * one.k * one.itemsize
            found.setdefault(matrix.weights, {})["weights"] = one.k * one.n * one.itemsize
            found.setdefault(matrix.output, {})["results"] = one.results
        return found

    def operand_sizes(self, parts: Mapping[str, int]) -> str:
        """Such parts in words."""
        return ", ".join(f"{show_bytes(size)} of {what}" for what, size in parts.items())

    def writeback_lacks(self, *steps: str) -> list[str]:
        """Those of `steps` that the array does not do on the way out."""
        return [step for step in steps if step not in self.arch.matrix.writeback]

    @property
    def arrays_beside(self) -> Mapping[str, Matrix]:
        """Arrays of a core in addition to its `matrix`."""
        return {name: each for name, each in self.arch.arrays.items() if name != "matrix"}

    @property
    def array_sides(self) -> Mapping[str, int]:
        """Extents of the array along which operands are used again."""
        matrix = self.arch.matrix
        if not matrix.present:
            return {}
        return {"cols": matrix.cols} | ({"rows": matrix.rows} if matrix.kind == "systolic" else {})

    @property
    def vector_wanted(self) -> float:
        """Bytes of one operand that full lanes take each cycle."""
        vector = self.arch.vector
        narrow = min(map(size_of, vector.types), default=1)
        return vector.units * vector.elements(narrow) * narrow / vector.cost.simple

    @property
    def vector_carried(self) -> float:
        """Bytes per cycle of the widest memory that the vector engine reads."""
        return max(self.on_chip[role].bytes_per_cycle() for role in self.arch.vector.reads)

    def vector_lacks(self, *names: str) -> list[str]:
        """Which of these types the vector engine has not."""
        return [name for name in names if not self.arch.vector.has(name)]

    @property
    def network_types(self) -> list[str]:
        """Those that a network may have."""
        return [name for name in self.arch.types if name in ("int8", *REALS)]

    @property
    def real_types(self) -> list[str]:
        """Real types of the vector engine and the scalar unit."""
        units = (self.arch.vector, self.arch.scalar)
        return [name for name in REALS if any(unit.has(name) for unit in units)]

    @property
    def instruction_bytes(self) -> float:
        """Of one instruction, as a mean."""
        return instruction_bytes(self.arch)

    @property
    def computing_startups(self) -> Mapping[str, Delay]:
        """Start-ups of the engines that compute, by field."""
        arrays = {
            ("matrix" if name == "matrix" else f"engines.{name}") + ".startup": each.startup
            for name, each in (self.arch.arrays | self.arch.function_engines).items()
        }
        return {"vector.startup": self.arch.vector.startup, **arrays}

    @property
    def startups(self) -> Mapping[str, Delay]:
        """Start-ups of all engines, by field."""
        copies = {f"copy.{name}.startup": each.startup for name, each in self.arch.copy_.items()}
        return {**self.computing_startups, **copies}

    @property
    def delays(self) -> Mapping[str, Delay]:
        """Latencies on the chip and start-ups of the engines that compute, by field."""
        memories = self.on_chip.items()
        latencies = {f"memories.{role}.latency": each.latency for role, each in memories}
        return {**latencies, **self.computing_startups}
