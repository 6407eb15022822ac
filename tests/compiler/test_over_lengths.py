"""Which of several programs for a range is taken, from cycles that are given."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.search.symbolic_sizes import over_lengths
from simmodel.isa.region import Register
from simmodel.program.program import Program

BATCH = Register("batch", 1, 8)


@dataclass(frozen=True)
class Made:
    """A program and its cycles at 8, 4 and 1."""

    name: str
    cycles: tuple[int, int, int]
    registers: tuple[Register, ...] = (BATCH,)

    @property
    def program(self) -> Program:
        nothing = ((),) * 5
        return Program(self.name, "machine", ((),), ({},), {}, *nothing, registers=self.registers)


def chosen(*tried: Made, allowed: float = 0.05) -> str:
    """The name of what is taken; short runs are in the order in which they are asked for."""
    asked: dict[str, list[int]] = {each.name: [*each.cycles[1:]] for each in tried}

    def cycles(program: Program) -> int:
        assert not program.registers
        return asked[program.name].pop(0)

    return over_lengths(tried, lambda m: m.cycles[0], lambda m: m.program, cycles, allowed).name


SPLIT = Made("a sample each", (254, 214, 202))
ROWS = Made("rows each", (259, 174, 131))


def test_a_little_more_at_the_edge_for_much_less_below() -> None:
    assert chosen(SPLIT, ROWS) == "rows each"


def test_not_more_than_is_allowed() -> None:
    assert chosen(SPLIT, ROWS, allowed=0.01) == "a sample each"


def test_a_program_of_one_length_is_the_quickest() -> None:
    fixed = [Made(each.name, each.cycles, registers=()) for each in (SPLIT, ROWS)]
    assert chosen(*fixed) == "a sample each"
