"""What a study needs of compiler and machine, as functions from values to a value.

The one idea: the workbench names no compiler and no simulator; it is given them. Workers receive
the toolchain by reference, so its functions are defined at the top level of a module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from archgen.scheduling import DEFAULT, Scheduling
from compiler.api import Attainable, Decisions, Products, Recipe, Stages
from simmodel.arch import Arch
from simmodel.functional import Host, Run
from simmodel.metrics import Metrics
from simmodel.program import Probe, Program
from simmodel.trace import Trace

Array = NDArray[Any]


@dataclass(frozen=True)
class Request:
    """What to compile: what `Toolchain.load` made of a model, the machine, and how."""

    name: str
    model: Any = field(repr=False)
    arch: Arch
    dtype: str
    """Element type of the network, one of `arch.types`."""
    host: bool = True
    """Whether operators may be left to the host processor."""
    scheduling: Scheduling = DEFAULT
    schedule_from: Arch | None = None
    """The machine to compile for, whose programs `arch` then runs; None: `arch` itself."""
    decisions: Decisions | None = field(default=None, repr=False, compare=False)
    """Schedules that were chosen before; they save time alone."""


@dataclass(frozen=True)
class Compiled:
    """A verified program, and what the compiler says about its decisions (JSON-ready)."""

    program: Program
    report: Mapping[str, Any]
    probes: tuple[Probe, ...] = ()
    """Every tensor that the program stores, to be seen while it runs."""
    recipe: Recipe | None = field(default=None, repr=False)
    """What its steps compute, in between too; None: only its outputs can be compared."""
    trace: Trace | None = field(default=None, repr=False)
    """Its run, where the program was chosen by that; None: it has not been simulated."""
    simulate_s: float = 0.0
    """Wall-clock seconds that this run took."""
    bound: Attainable | None = None
    """What no schedule of it can undercut; None: not known."""
    working_set: int | None = None
    """Bytes between its layers that are alive at once; None: not known."""
    products: Callable[[Arch], Products] | None = field(default=None, repr=False, compare=False)
    """What its products would take on another machine; None: not known."""
    at: Callable[[Mapping[str, int]], Compiled] | None = field(
        default=None, repr=False, compare=False
    )
    """Where lengths are known only when it runs: the program for some, verified."""


@dataclass(frozen=True)
class Toolchain:
    """Compiler, executor, simulator and meter."""

    load: Callable[[onnx.ModelProto, str, Stages], Any]
    """The part of compiling that depends on no machine, from a bound model, its name, and the
    options of the compiler; of these only on `Stages.shared`."""
    compile: Callable[[Request], Compiled]
    execute: Callable[[Program, Mapping[str, Array], Arch, Host, Sequence[Probe]], Run]
    """Outputs and probed values by name, from inputs by name."""
    simulate: Callable[[Program, Arch], Trace]
    measure: Callable[[Trace, Program, Arch, int], Metrics]
    """The last argument is the batch."""
    decisions: Path | None = None
    """Folder in which the compiler's decisions outlive a process; None: there is none."""
    tries: bool = False
    """Whether changes of a machine are tried on its runs: levers of the report."""
    anew: bool = False
    """Whether the most promising of those that take another program are compiled for."""
