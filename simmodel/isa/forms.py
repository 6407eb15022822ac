"""Instruction forms: all kinds of instructions that machines of this family may have.

    vector.binary.add      dst = a + b, element by element
    matrix.gemm            the product of a whole tile
    copy                   a strided transfer

The one idea: a form is a class of instruction and, on the vector engine, a function. Forms are
listed from the classes and tables that define them, extensions included; the machine's file states
which of them it has, and their limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from simmodel.arch.base import CHAINS
from simmodel.arch.element_types import per_block
from simmodel.arch.record import Arch
from simmodel.isa import INSTRUCTIONS, Instruction
from simmodel.isa.copy import Indirect
from simmodel.isa.functions import Function
from simmodel.isa.matrix import DepthwiseConv, MatrixInstruction, WinogradConv
from simmodel.isa.vector import Product, Splat, VectorInstruction, Window

NEEDED = ("vector.splat", "vector.unary.move", "vector.binary.add", "vector.binary.mul")
"""Forms that every machine has: the compiler finishes results with them."""


@dataclass(frozen=True)
class Form:
    """One form of instruction."""

    name: str
    kind: type[Instruction]
    function: Function | None = None
    """Of the vector engine."""

    @property
    def engine(self) -> str:
        """Kind of the engine that executes it; `sync`: any, in its queue."""
        return self.kind.UNIT

    @property
    def cost(self) -> str | None:
        """Class of `vector.cost` that it is of; None on other engines."""
        if self.kind in _COSTS:
            return _COSTS[self.kind]
        return None if self.function is None else self.function.cost

    @property
    def removable(self) -> bool:
        """Whether a file may remove it by name: not the forms that others are built of."""
        return self.function is not None or issubclass(self.kind, Indirect)

    @property
    def meaning(self) -> str:
        """Short meaning: the first words of its definition, the function by its name."""
        said = " ".join((self.kind.__doc__ or "").split())
        first = re.split(r"[.;] ", said)[0].rstrip(".")
        if self.function is None:
            return first
        named = ", ".join(dict.fromkeys(self.function.parameters))
        parameters = f"[{named}]" if named else ""
        return first.replace("function", self.name.rpartition(".")[2] + parameters)


_COSTS: Mapping[type, str] = {Splat: "simple", Product: "multiply"}
"""Class of `vector.cost` of forms that are no functions."""
_TABLES = {
    name: kind.TABLE for name, kind in INSTRUCTIONS.items() if issubclass(kind, VectorInstruction)
}


def forms() -> dict[str, Form]:
    """Every form by its name, in the order of `INSTRUCTIONS` and of the tables of functions."""
    return {form.name: form for kind in INSTRUCTIONS.values() for form in _of(kind)}


def _of(kind: type[Instruction]) -> Iterator[Form]:
    if not issubclass(kind, VectorInstruction):
        yield Form(kind.MNEMONIC, kind)
        return
    for name, function in kind.TABLE.items():
        yield Form(f"{kind.MNEMONIC}.{name}", kind, function)
    if issubclass(kind, Window):
        yield Form(f"{kind.MNEMONIC}.fma", kind, kind.WEIGHTED)


def elementwise_form(function: str, operands: int, engine: str = "vector") -> str:
    """Name of the form for a function of so many operands; engines beside the vector engine have
    forms of its own."""
    family = "scalar" if engine == "scalar" else "vector"
    return f"{family}.{('unary', 'binary', 'ternary')[operands - 1]}.{function}"


def definition(function: str, operands: int) -> Function:
    """The function of this name and number of operands; KeyError if there is none."""
    return _TABLES[elementwise_form(function, operands).rpartition(".")[0]][function]


def cost_of(form: str) -> str:
    """Cost class of a form of the vector engine; KeyError if there is none of this name."""
    family, _, name = form.rpartition(".")
    return _TABLES[family].get(name, Window.WEIGHTED).cost


def absent_forms(arch: Arch) -> dict[str, str]:
    """The forms that `arch` lacks, and why."""
    found = {name: absent(form, arch) for name, form in forms().items()}
    return {name: f"{arch.name} has no {name} ({why})" for name, why in found.items() if why}


def absent(form: Form, arch: Arch) -> str | None:
    """The field of `arch` that removes `form`, with its value; None: it has the form."""
    removable = form.engine in ("vector", "scalar") or issubclass(form.kind, Indirect)
    if removable and not arch.isa.has(form.name):
        return "isa.chains" if form.name.rpartition(".")[2] in CHAINS else "isa.without"
    if form.name.endswith(".blocks") and not any(per_block(t) > 1 for t in arch.vector.types):
        return "vector.types"
    if form.name.endswith(".lookup") and (form.engine == "scalar" or arch.vector.table is None):
        return "vector.table: null"
    if issubclass(form.kind, Window) and not arch.vector.window:
        return "vector.window: false"
    if issubclass(form.kind, Product) and not arch.vector.product_rows:
        return "vector.product_rows: 0"
    if form.engine == "matrix" and not arch.matrix.present:
        return "no matrix"
    arrays = arch.arrays.values()
    if issubclass(form.kind, WinogradConv) and not any(array.winograd for array in arrays):
        return "matrix.winograd: null"
    if issubclass(form.kind, DepthwiseConv) and not any(array.depthwise for array in arrays):
        return "matrix.depthwise: false"
    indirect = issubclass(form.kind, Indirect)
    if indirect and all(engine.indirect is None for engine in arch.copy_.values()):
        return "copy.*.indirect: null"
    if issubclass(form.kind, MatrixInstruction):
        grains = dict.fromkeys(array.granularity for array in arrays)
        if not {*form.kind.GRANULARITIES} & {*grains}:
            return f"matrix.granularity: {', '.join(grains)}"
    if form.engine == "scalar" and form.function is not None and not arch.scalar.types:
        return "no scalar.types"
    rounded = form.function.rounds_to if form.function is not None else None
    types = arch.scalar.types if form.engine == "scalar" else arch.vector.types
    if rounded is not None and rounded not in types:
        return f"no {rounded} in {form.engine}.types"
    return None
