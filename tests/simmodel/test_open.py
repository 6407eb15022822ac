"""What a program leaves open makes sense for every length, or is refused before it is settled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from handmade import machine
from test_lengths import MOST, rows_at_run_time

from simmodel.isa import Item, Loop
from simmodel.isa.region import Address, Limit, Operand, Register, Ring
from simmodel.program.program import Program
from simmodel.program.substitute import operands_of
from simmodel.verify import findings

N = Register("n", 1, MOST)


def said(made: Program) -> list[str]:
    return [f"[{each.rule}] {each.message}" for each in findings(made, machine())]


@pytest.mark.parametrize(
    ("registers", "expected"),
    [
        ((N, N), "[register] register 'n' is there 2 times, expected once"),
        ((Register("", 1, 2),), "[register] a register has no name"),
        ((Register("n", 0, MOST),),
         f"[register] register 'n' has low=0 high={MOST}, expected 1 <= low <= high < 2147483648"),
        ((Register("n", -5, MOST),), f"[register] register 'n' has low=-5 high={MOST}"),
        ((Register("n", 1, 10**20),), f"[register] register 'n' has low=1 high={10**20}"),
        ((Register("n", 1, MOST, 2),), "[register] register 'n' has parts or a base, which are of"),
        ((N, Register("m", 1, 8, 2, 0, (("k", 1),))),
         "[register] register 'm' is a share of 'k', which is no length; there are 'n'"),
        ((N, Register("m", 1, 8, 0, 0, (("n", 1),))), "[register] register 'm' has parts=0"),
        ((N, Register("m", 1, MOST, 2, 0, (("n", 1),))),
         f"[register] register 'm' has high={MOST}, expected {MOST // 2}, its share of the most"),
        ((Register("n", 1, MOST - 1),),
         f"[port] input 'x': dimension 0 has {MOST} positions at the most, but register n has "
         f"high={MOST - 1}"),
        ((Register("n", 1, 2 * MOST),),
         f"[port] input 'x': dimension 0 has {MOST} positions at the most, but register n has "
         f"high={2 * MOST}"),
        ((Register("k", 1, MOST),),
         "[port] input 'x': no loop around it counts 'n', and no register is called so"),
        ((), "[limit] it has limits, which only programs with registers have"),
    ],
)  # fmt: skip
def test_registers_are_what_the_program_is_made_for(
    registers: tuple[Register, ...], expected: str
) -> None:
    found = said(replace(rows_at_run_time(), registers=registers))
    assert any(each.startswith(expected) for each in found), found


def changed(item: Item, change: Callable[[Operand], Operand]) -> Item:
    """`item` with other operands where they have limits."""
    if isinstance(item, Loop):
        return replace(item, body=tuple(changed(inner, change) for inner in item.body))
    new: dict[str, Any] = {n: change(o) for n, o in operands_of(item).items() if o.limits}
    return replace(item, **new)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda o: replace(o, limits=(Limit(0, 4, (("zzz", 1),)),)),
         "[limit] no loop around it counts 'zzz', and no register is called so"),
        (lambda o: replace(o, limits=(Limit(7, 4, (("n", 1),)),)),
         "[limit] dimension 7 has a limit, the operand has"),
        (lambda o: replace(o, address=Address(0, (("zzz", 1),))),
         "[loop] no loop around it counts 'zzz'"),
        (lambda o: replace(o, address=Address(0, (), Ring(0, 4, 0, (("n", 1),)))),
         "[shape] a ring of 0 slots, expected at least 1"),
    ],
)  # fmt: skip
def test_what_names_a_length_names_one(change: Callable[[Operand], Operand], expected: str) -> None:
    made = rows_at_run_time()
    cores = tuple(tuple(changed(item, change) for item in stream) for stream in made.cores)
    assert any(each.startswith(expected) for each in said(replace(made, cores=cores)))


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (("q", 10**12), "[loop] it has limits inside of 10000000000"),
        (("n", 2), "[loop] loop n has the name of a register"),
        (("q", 0), "[loop] loop q runs 0 times"),
    ],
)
def test_loops_around_limits_are_few_and_have_names_of_their_own(
    loop: tuple[str, int], expected: str
) -> None:
    made = rows_at_run_time()
    cores = tuple(tuple(Loop(*loop, (item,)) for item in stream) for stream in made.cores)
    assert any(each.startswith(expected) for each in said(replace(made, cores=cores)))
