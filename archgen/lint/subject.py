"""What rules look at, and what they see.

The one idea: a rule's function gets a `LintedMachine` and the rule's limit, and tells each place of
the file that is beyond it as a `Sight`, with the figure and with what is usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from archgen.energy import EnergyCosts, costs_of
from archgen.lint.rules import PublishedChips, published_chips
from archgen.schema.rewritten import Peaks, instances, peaks
from archgen.schema.tree import Path
from simmodel.arch.record import Arch, Memory


@dataclass(frozen=True)
class Sight:
    """A field beyond a limit."""

    path: Path
    """The field, as in files."""
    figure: str
    """What it says, or what follows from it."""
    usual: str
    """What is usual or possible."""
    chip: str = ""
    """A published chip for comparison."""


@dataclass(frozen=True)
class LintedMachine:
    """One machine and what follows from its file."""

    arch: Arch
    known: PublishedChips

    @staticmethod
    def of(arch: Arch) -> LintedMachine:
        """`arch` beside the chips that the package knows."""
        return LintedMachine(arch, published_chips())

    @cached_property
    def peaks(self) -> Peaks:
        """What it could do at best."""
        return peaks(self.arch)

    @cached_property
    def costs(self) -> EnergyCosts:
        """Energies and areas, by the table and what the file states."""
        energy = self.arch.energy.model_copy(update={"source": "table"})
        return costs_of(self.arch.model_copy(update={"energy": energy}))

    @cached_property
    def tabled(self) -> EnergyCosts:
        """Energies and areas by the table alone."""
        given = self.arch.energy
        kept = {name: getattr(given, name) for name in ("node", "voltage", "dram")}
        return costs_of(self.arch.model_copy(update={"energy": type(given)(**kept)}))

    @property
    def macs(self) -> float:
        """Of the preferred type in a cycle, whole chip."""
        return self.arch.peak_macs(self.arch.types[0])

    @property
    def tops(self) -> float:
        """Tera-operations per second of the preferred type; a multiply-accumulate counts two."""
        return 2e-12 * self.macs * self.arch.clock

    def carried(self, role: str, write: bool) -> float:
        """Bytes per cycle of one instance of a memory; of the whole chip for DRAM."""
        memory = self.arch.memories.get(role)
        if isinstance(memory, Memory):
            return memory.bytes_per_cycle(write)
        return self.arch.dram_bytes_per_cycle

    def instances(self, role: str) -> int:
        """How many memories of this role the chip has."""
        return 1 if role == "dram" else instances(self.arch, role)

    def nearest(self) -> str:
        """The published chip whose peak is nearest."""
        tops = max(self.tops, 1e-9)
        chips = self.known.chips.values()
        return min(chips, key=lambda chip: abs(_ratio(chip.tops, tops))).cited()


def _ratio(one: float, other: float) -> float:
    return max(one, other) / min(one, other)


Check = Callable[[LintedMachine, float], Iterator[Sight]]
