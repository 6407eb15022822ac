"""A network whose lengths are known only at run time: the model at any of them.

The one idea: at fixed lengths a network is a model like any other, opened as usual; how the program
depends on the lengths is inferred from a few such models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import onnx_ir as ir

from compiler.symbolic.constants import Constants, no_constants
from compiler.tensor_ir.interpreter import Host
from simmodel.isa.region import Register


@dataclass(frozen=True)
class SymbolicModel:
    """A model for each length within some ranges."""

    registers: tuple[Register, ...]
    prepare: Callable[[Mapping[str, int]], ir.Model | None] = field(repr=False)
    """The model at one length of each register, also beyond the ranges; None if there is none. All
    have the same constants, except those that depend on the lengths."""
    host: Host = field(repr=False)
    """Runs operators that are left to the host."""
    constants: Constants = field(default=no_constants, repr=False)
    """Values of constants that depend on the lengths."""

    def at(self, values: Mapping[str, int]) -> ir.Model | None:
        """The model at these lengths; the one at the maximum is prepared once."""
        edge = all(values[register.name] == register.high for register in self.registers)
        return self.edge if edge else self.prepare(values)

    @cached_property
    def edge(self) -> ir.Model:
        """The model at the upper edge of all ranges.

        Raises ValueError where there is none.
        """
        model = self.prepare({register.name: register.high for register in self.registers})
        if model is None:
            raise ValueError("there is no network at the upper edge")
        return model
