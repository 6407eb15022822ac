"""`simulate`: from a program and an architecture to a trace."""

from __future__ import annotations

from simmodel.arch import Arch
from simmodel.machine.build import Machine
from simmodel.machine.collect import collect
from simmodel.program import Program
from simmodel.trace import Trace


def simulate(program: Program, arch: Arch, trace: bool = False, levels: bool = True) -> Trace:
    """Run `program` on the event model of `arch`.

    Args:
        program: what to run; it should have passed the verifier.
        arch: the machine.
        trace: also keep every instruction's span and every resource's level over time.
        levels: False leaves the levels out of a trace; they cost a third of the time, the spans
            next to nothing.

    Returns:
        Cycles, where they went, and bytes moved.

    Raises:
        NotRunnable: the program asks for an engine, memory, token or barrier that is not there.
        Deadlock: the machine fell silent with work left; the text says who waits for what.
    """
    machine = Machine(arch, trace, levels)
    machine.connect(program)
    cycles = machine.run()
    return collect(machine, program, cycles)


def traced(program: Program, arch: Arch) -> Trace:
    """The same with all spans and without levels, which takes hardly longer than neither."""
    return simulate(program, arch, trace=True, levels=False)
