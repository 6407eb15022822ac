"""What rules look at: one machine, and the figures that follow from its file.

The one idea: an expression of a rule names a figure of `LintedMachine`, or a field of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from archgen.energy import EnergyCosts, costs_of
from archgen.energy.area_of_parts import instruction_bytes
from archgen.energy.ranges import UncertainValue, at_node
from archgen.energy.table import Speed, shipped_table
from archgen.lint.products import ArrayProduct
from archgen.lint.rules import Chip, DramKind, PublishedChips, published_chips
from archgen.schema.rewritten import Peaks, instances, peaks
from simmodel.arch.dtype import size_of
from simmodel.arch.record import Arch, CopyEngine, Host, Link, Memory
from simmodel.arch.units import Delay, show_bytes

REALS = ("fp32", "fp16", "bf16")
NETWORK_TYPES = ("int8", *REALS)
"""Types that a network is quantized to, or may have."""


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


@dataclass(frozen=True)
class LintedMachine:
    """One machine and what follows from its file."""

    arch: Arch
    published: PublishedChips

    @staticmethod
    def of(arch: Arch) -> LintedMachine:
        """`arch` beside the chips that the package knows."""
        return LintedMachine(arch, published_chips())

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

    def most(self, figure: str, sram: float | None = None) -> Chip:
        """The published chip of which `figure` is largest, of those with up to `sram` bytes."""
        return max(self.published.chips.values(), key=lambda chip: chip.figure(figure, sram) or -1)

    def least(self, figure: str) -> Chip:
        """The published chip of which `figure` is smallest."""
        known = [chip for chip in self.published.chips.values() if chip.figure(figure)]
        return min(known, key=lambda chip: chip.figure(figure) or 0)

    @property
    def nearest(self) -> str:
        """The published chip whose peak is nearest."""
        tops = max(self.tops, 1e-9)
        chips = self.published.chips.values()
        return min(chips, key=lambda chip: max(chip.tops, tops) / min(chip.tops, tops)).cited()

    @property
    def dram_kind(self) -> DramKind | None:
        """The most that is known of the kind of DRAM."""
        return self.published.dram.get(self.arch.energy.dram)

    @property
    def same_node(self) -> str:
        """The chip of the technology that is nearest."""
        dated = [chip for chip in self.published.chips.values() if chip.node]
        chip = min(dated, key=lambda chip: abs((chip.node or 0) - self.arch.energy.node))
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

    @property
    def energies(self) -> Mapping[str, UncertainValue]:
        """Energies by the fields that may state them."""
        return _by_field(self.costs)

    @cached_property
    def tabled(self) -> Mapping[str, UncertainValue]:
        """The same by the table alone."""
        given = self.arch.energy
        kept = {name: getattr(given, name) for name in ("node", "voltage", "dram")}
        return _by_field(costs_of(self.arch.model_copy(update={"energy": type(given)(**kept)})))

    def energy_unit(self, field: str) -> str:
        """What a field states an energy in."""
        if field.endswith(".leakage"):
            return "mW"
        return "pJ/B" if field.split(".")[1] in ("memories", "links") else "pJ"

    # Memories, and what moves data between them.

    @property
    def on_chip(self) -> Mapping[str, Memory]:
        """Memories on the chip by role."""
        return self.arch.memories.on_chip()

    @property
    def role_bytes(self) -> Mapping[str, int]:
        """Bytes of all memories of a role."""
        return {role: each.size * self.instances(role) for role, each in self.on_chip.items()}

    @property
    def largest_role(self) -> str:
        """The role of the memories that hold most."""
        return max(self.role_bytes.items(), key=lambda pair: pair[1])[0]

    def carried(self, role: str, write: bool = False) -> float:
        """Bytes per cycle of one instance of a memory; of the whole chip for DRAM."""
        memory = self.arch.memories.get(role)
        if isinstance(memory, Memory):
            return memory.bytes_per_cycle(write)
        return self.arch.dram_bytes_per_cycle

    def instances(self, role: str) -> int:
        """How many memories of this role the chip has."""
        return 1 if role == "dram" else instances(self.arch, role)

    def readers(self, role: str) -> int:
        """Engines that read a memory; sums that are written back by the array are read by it."""
        matrix = self.arch.matrix
        readers = [role in engine.from_ for engine in self.arch.copy_.values()]
        readers += [role in self.arch.vector.reads]
        if matrix.present:
            written_back = role == matrix.output and bool(matrix.writeback)
            readers += [role in (matrix.input, matrix.weights) or written_back]
        return sum(readers)

    def port_bytes(self, role: str) -> str:
        """What the ports of a memory carry, in words."""
        memory = self.on_chip[role]
        if not memory.split_ports:
            return f"{memory.bytes_per_cycle():,} B/cycle for both"
        read, written = memory.bytes_per_cycle(), memory.bytes_per_cycle(True)
        return f"{read:,} B/cycle to read, {written:,} to write"

    def per_cycle(self, mover: CopyEngine | Link | Host) -> float:
        """Bytes of its bandwidth in a cycle."""
        return mover.bandwidth.at(self.arch.clock)

    def cycles(self, delay: Delay) -> int:
        """A delay in cycles."""
        return delay.cycles(self.arch.clock)

    def meets_dram(self, engine: CopyEngine) -> bool:
        """Whether it loads from DRAM or stores to it."""
        return "dram" in (*engine.from_, *engine.to)

    def copy_engines(self, trait: str) -> int:
        """How many have a trait."""
        return sum(getattr(engine, trait) for engine in self.arch.copy_.values())

    @property
    def copy_ends(self) -> list[tuple[str, PathEnd]]:
        """Ends on the chip of each copy engine."""
        return [
            (name, PathEnd(self.per_cycle(engine), widest, self.carried(widest, write), way))
            for name, engine in self.arch.copy_.items()
            for roles, write, way in ((engine.from_, False, "read"), (engine.to, True, "written"))
            if "dram" not in roles
            for widest in [max(roles, key=lambda role: self.carried(role, write))]
        ]

    @property
    def link_ends(self) -> list[tuple[str, PathEnd]]:
        """Ends on the chip of each link, with all memories that share an instance of it."""
        found = []
        for name, link in self.arch.links.items():
            for roles, write, way in ((link.from_, False, "read"), (link.to, True, "written")):
                shares = {
                    role: self.carried(role, write)
                    * max(1, self.instances(role) // self._link_instances(link))
                    for role in roles
                }
                widest = max(shares, key=lambda role: shares[role])
                if "dram" not in roles:
                    end = PathEnd(self.per_cycle(link), widest, sum(shares.values()), way)
                    found.append((name, end))
        return found

    def crossings(self, link: Link) -> int:
        """Copy engines that cross a link."""
        return sum(
            bool(set(engine.from_) & set(link.from_) and set(engine.to) & set(link.to))
            for engine in self.arch.copy_.values()
        )

    @property
    def dram_moved(self) -> float:
        """Bytes per cycle that the copy engines of all cores move from and to DRAM at most."""
        return sum(map(self._through, self.arch.copy_.values()))

    def _through(self, engine: CopyEngine) -> float:
        ways = [(source, target) for source in engine.from_ for target in engine.to]
        rates = [
            min(
                self.per_cycle(engine) * self.arch.core_count,
                *(
                    self.per_cycle(link) * self._link_instances(link)
                    for link in self.arch.links.values()
                    if source in link.from_ and target in link.to
                ),
                float("inf"),
            )
            for source, target in ways
            if "dram" in (source, target)
        ]
        return max(rates, default=0.0)

    def _link_instances(self, link: Link) -> int:
        return {"chip": 1, "cluster": self.arch.clusters, "core": self.arch.core_count}[link.scope]

    @property
    def bursts(self) -> Mapping[str, int]:
        """Bytes that go at once, by field."""
        requests = {f"copy.{name}.request": each.request for name, each in self.arch.copy_.items()}
        return {"memories.dram.burst": self.arch.memories.dram.burst, **requests}

    # Engines that compute.

    @property
    def best_product(self) -> ArrayProduct:
        """The longest of one instruction."""
        return ArrayProduct.best(self.arch)

    @property
    def least_product(self) -> ArrayProduct:
        """The smallest that fills the array."""
        return ArrayProduct.least(self.arch)

    @property
    def tile_operands(self) -> Mapping[str, Mapping[str, int]]:
        """Bytes of an array-sized product, by memory and by what they are."""
        return self.least_product.operand_bytes() if self.arch.matrix.present else {}

    def operand_sizes(self, parts: Mapping[str, int]) -> str:
        """Such parts in words."""
        return ", ".join(f"{show_bytes(size)} of {what}" for what, size in parts.items())

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
        narrow = min(size_of(name) for name in vector.types) if vector.types else 1
        return vector.units * vector.elements(narrow) * narrow / vector.cost.simple

    @property
    def vector_carried(self) -> float:
        """Bytes per cycle of the widest memory that the vector engine reads."""
        return max(self.on_chip[role].bytes_per_cycle() for role in self.arch.vector.reads)

    def vector_lacks(self, *names: str) -> list[str]:
        """Which of these types the vector engine has not."""
        return [name for name in names if not self.arch.vector.has(name)]

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
    def startups(self) -> Mapping[str, Delay]:
        """Start-ups of all engines, by field."""
        copies = {f"copy.{name}.startup": each.startup for name, each in self.arch.copy_.items()}
        return {**self._computing_startups, **copies}

    @property
    def delays(self) -> Mapping[str, Delay]:
        """Latencies on the chip and start-ups of the engines that compute, by field."""
        latencies = {
            f"memories.{role}.latency": each.latency for role, each in self.on_chip.items()
        }
        return {**latencies, **self._computing_startups}

    @property
    def _computing_startups(self) -> Mapping[str, Delay]:
        matrix = self.arch.matrix
        array = {"matrix.startup": matrix.startup} if matrix.present else {}
        return {"vector.startup": self.arch.vector.startup, **array}


def _by_field(costs: EnergyCosts) -> dict[str, UncertainValue]:
    return {
        **{f"energy.mac.{name}": cost for name, cost in costs.mac.items()},
        **{f"energy.vector.{name}": cost for name, cost in costs.vector.items()},
        **{f"energy.memories.{role}.read": cost for role, cost in costs.read.items()},
        **{f"energy.memories.{role}.write": cost for role, cost in costs.write.items()},
        **{f"energy.links.{name}": cost for name, cost in costs.links.items()},
        "energy.instruction": costs.instruction,
        "energy.leakage": costs.leakage,
    }
