"""The verifier: proves before anything runs that a program means the same in every legal order.

    open      registers, and what names them, mean something for every length
    static    every instruction exists on this machine, and what it names is declared
    bounds    every operand, for all iterations, is inside its memory and aligned
    sync      tokens have one giver and one taker and balance; barriers get their arrivals
    deadlock  the queues, with their depths, can play the program to its end
    hazards   conflicting accesses are ordered; what is read was written; outputs are complete

Each stage assumes the ones before it, so the first stage that finds something ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from simmodel.arch.record import Arch
from simmodel.errors import Finding, TooLong, VerifyError
from simmodel.program.program import Program
from simmodel.program.sizes import longest
from simmodel.verify.happens_before import Clocks, Stuck, sequence, timeline
from simmodel.verify.hazards import (
    barrier_findings,
    race_findings,
    token_findings,
    touching,
    written_findings,
)
from simmodel.verify.instructions import operand_bounds, static_findings, storage_bounds
from simmodel.verify.overlap import accesses, legal_edges, rivalries
from simmodel.verify.symbolic import open_findings

__all__ = ["Finding", "VerifyError", "check_open", "findings", "verify"]


def verify(program: Program, arch: Arch) -> None:
    """Return nothing if `program` keeps every rule on `arch`.

    A program with registers is checked at the maximum of its lengths; what
    `simmodel.program.sizes.specialize` makes of it is checked separately.

    Raises:
        VerifyError: it breaks some; `.findings` lists them.
    """
    _refuse(program, findings(program, arch))


def check_open(program: Program) -> None:
    """Return nothing if `program` can be specialized for all of its lengths.

    Raises:
        VerifyError: its registers, or what names them, make no sense.
    """
    _refuse(program, open_findings(program))


def _refuse(program: Program, found: Sequence[Finding]) -> None:
    if found:
        raise VerifyError(program.name, tuple(found))


def findings(program: Program, arch: Arch) -> Sequence[Finding]:
    """The findings of `verify`; empty for a valid program."""
    if found := open_findings(program):
        return found
    program = longest(program)
    if found := static_findings(program, arch):
        return found
    try:
        line = timeline(program)
    except TooLong as long:
        return [Finding("loop", str(long))]
    found = [*operand_bounds(line, arch), *storage_bounds(program, arch)]
    found += [*token_findings(line), *barrier_findings(line)]
    if found:
        return found
    table = accesses(line, arch)
    try:
        edges = legal_edges(line, arch, table)
        order = sequence(line, edges, arch=arch)
    except Stuck as stuck:
        return [Finding("deadlock", str(stuck))]
    clocks = Clocks(line, edges, order)
    table = touching(line, table)
    # An interlock orders what one core does; all else only tokens and barriers can order.
    interlock = arch.front_end.sync == "interlock"
    rivals = rivalries(line, table, clocks, of_one_core=False if interlock else None)
    # With races, one order says nothing about the others.
    races = list(race_findings(line, clocks, rivals))
    return races or list(written_findings(line, table, order, arch))
