"""The functions of `import archgen`: each from values to a value, none printing anything.

arch = archgen.load_arch("soma-edge")
model = archgen.load_model("resnet50", batch=1)
program = archgen.compile_model(model, arch)
trace = archgen.simulate(program, arch)
archgen.measure(trace, program, arch)
archgen.study(["soma-edge"], ["resnet50"]).frame
archgen.explore("studies/03_explore.yaml").frame
archgen.save("resnet50.npu", program, arch)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import onnx
import pandas as pd

from archgen.check.reference import run_node
from archgen.comparison.comparison import StudyComparison, compare
from archgen.exploration.evaluate import EvaluationTools
from archgen.exploration.plan import AREA, Given, load_exploration, load_sensitivity_plan
from archgen.exploration.saving import save_answer, save_found, save_sensitivities
from archgen.exploration.search import Answer, ExplorationResult, search, smallest
from archgen.exploration.sensitivity import Sensitivities, sensitivities
from archgen.models.extents import SizeRange, extents
from archgen.models.load import NAMED_NETWORK, SourceModel, load_calibration, open_model
from archgen.models.roles import infer_roles
from archgen.models.source_family import SourceFamily, open_family
from archgen.outcomes.commands import commands_frame
from archgen.process.steps import step
from archgen.program_files import AssemblyError, Loaded, load, read_assembly, save, write_assembly
from archgen.scheduling import Choices, Scheduling, choice
from archgen.schema import load_arch
from archgen.schema.variants import factor_of
from archgen.studies.design import StudyError
from archgen.studies.options import Running, StudyOptions, with_fields
from archgen.studies.prepare import Prepared, PreparedSymbolicModel, prepare, prepare_symbolic_model
from archgen.studies.results import Study, open_study
from archgen.studies.sweep import Observer, estimate, study
from archgen.toolchain import STANDARD, Request
from compiler.api import UnsupportedModel
from simmodel.arch.dtype import Array
from simmodel.arch.record import Arch
from simmodel.errors import MACHINE, PROGRAM, expect, whole_number
from simmodel.execute import run
from simmodel.machine.run import simulate, traced
from simmodel.metrics import Metrics, measure
from simmodel.program.encoding import codes
from simmodel.program.program import Program, expect_run
from simmodel.program.sizes import lengths_of, longest, specialize
from simmodel.trace import Trace
from simmodel.verify import check_open, verify

__all__ = [
    "Arch", "AssemblyError", "Loaded", "Metrics", "Program", "Running", "SourceFamily",
    "SourceModel", "Study", "StudyComparison", "StudyError", "StudyOptions", "Trace", "codes",
    "commands", "compare", "compile_model", "estimate", "execute", "explore", "load", "load_arch",
    "load_family", "load_model", "measure", "open_study", "read_assembly", "save", "sensitivity",
    "simulate", "smallest_machine", "states", "study", "write_assembly",
]  # fmt: skip


_NETWORK = 'a network as load_model("resnet50") gives it'


def load_model(
    spec: str | PathLike[str], *, batch: int | None = None, dims: Mapping[str, int] | None = None,
    roles: Mapping[str, str] | None = None,
) -> SourceModel:  # fmt: skip
    """The network `spec` with every input dimension bound.

    Args:
        spec: zoo name (`resnet50`, `resnet50:image=160`) or path of an ONNX file.
        batch: samples in one inference; default: what the file fixes, else 1.
        dims: sizes of free input dimensions, by name or as `input:axis`; of a network of the zoo,
            options and `batch`.
        roles: of inputs by name, where evidence misleads: `batch:1` says which axis the batch is,
            `data`, `state`, `index`, `mask` or `parameter` what the input is.

    Raises:
        ModelError: with what is wrong and what would be right.
    """
    named, batch = _path_or_name(spec), _batch(batch)
    expect("dims", dims or {}, Mapping, "sizes by name")
    with step(f"opening {named}"):
        return open_model(named, batch, dims, roles=roles)


def _path_or_name(spec: str | PathLike[str]) -> str | Path:
    """Of a network; WrongArgument where it can be neither."""
    expect("spec", spec, (str, PathLike), NAMED_NETWORK)
    return spec if isinstance(spec, Path) else fspath(spec)


def _batch(given: int | None) -> int | None:
    return None if given is None else whole_number("batch", given)


def load_family(
    spec: str | PathLike[str], *, dims: Mapping[str, int | str | tuple[int, int]],
    batch: int | None = None, roles: Mapping[str, str] | None = None,
) -> SourceFamily:  # fmt: skip
    """The network `spec` for all lengths of some dimensions, known only when its program runs.

    Args:
        spec: as for `load_model`.
        dims: a size, or a range as `"1..512"` or `(1, 512)`, by name or as `input:axis`.
        batch: as for `load_model`.
        roles: as for `load_model`.

    Raises:
        ModelError: with what is wrong and what would be right.
        ValueError: what is no size and no range.
    """
    asked = {name: f"{d[0]}..{d[1]}" if isinstance(d, tuple) else d for name, d in dims.items()}
    sizes = {name: extents(dim, ranges=True).only for name, dim in asked.items()}
    several = [f"dims[{name!r}]: expected one size or range" for name in sizes if not sizes[name]]
    if several:
        raise ValueError("; ".join(several))
    named = _path_or_name(spec)
    with step(f"opening {named}"):
        return open_family(
            named, _batch(batch),
            {name: size for name, size in sizes.items() if isinstance(size, int)},
            {name: span for name, span in sizes.items() if isinstance(span, SizeRange)},
            roles or {},
        )  # fmt: skip


def compile_model(
    model: SourceModel | SourceFamily, arch: Arch, *, dtype: str | None = None, host: bool = True,
    calibration: str | PathLike[str] | None = None, **choices: Unpack[Choices],
) -> Program:  # fmt: skip
    """A verified program that computes `model` on `arch`.

    Args:
        model: from `load_model`, or for a program of many lengths from `load_family`; a float
            model is quantized first when `dtype` is int8.
        arch: from `load_arch`.
        dtype: element type of the network; default: the first of `arch.types`.
        host: whether operators may be left to the host processor.
        calibration: .npz file with samples for quantization; default: seeded noise.
        choices: of the schedule, by name: `fusion` (none, line, branch, branchx, optimal) says how
            layers are partitioned into groups, `halo` (rolling, recompute, auto) what neighbouring
            tiles share, `objective` (latency, throughput, memory, energy-proxy) what schedules are
            compared by, `effort` (0, fast, to 3, wide) how long the compiler may search.

    Raises:
        OptionError: a choice that is none.
        DoesNotFit: the machine cannot hold it; the error has the sum and the levers.
        UnsupportedModel: an operator or element type that this machine cannot be given.
        ModelError: the model cannot be quantized, or `calibration` does not suit it.
    """
    scheduling = choice(**choices)
    prepared = prepared_for(model, arch, dtype, calibration, scheduling)
    made = STANDARD.compile(request_for(*prepared, arch, host, scheduling)).program
    return batched(made, model.edge.proto)


def prepared_for(
    model: SourceModel | SourceFamily, arch: Arch, dtype: str | None = None,
    calibration: str | PathLike[str] | None = None, scheduling: Scheduling | None = None,
) -> tuple[Prepared | PreparedSymbolicModel, str]:  # fmt: skip
    """`model` as it is compiled for `arch`, and its element type; arguments as `compile_model`."""
    expect("model", model, (SourceModel, SourceFamily), _NETWORK)
    expect("arch", arch, Arch, MACHINE)
    chosen = dtype or arch.types[0]
    if chosen not in arch.types:
        known = ", ".join(arch.types)
        raise UnsupportedModel(f"{arch.name} runs networks of {known}, not {chosen}")
    samples = load_calibration(None if calibration is None else fspath(calibration))
    stages = None if scheduling is None else scheduling.stages
    if isinstance(model, SourceFamily):
        return prepare_symbolic_model(model, chosen, samples, stages), chosen
    return prepare(model, chosen, samples, stages), chosen


def request_for(
    model: Prepared | PreparedSymbolicModel, dtype: str, arch: Arch, host: bool,
    scheduling: Scheduling,
) -> Request:  # fmt: skip
    """What the compiler is asked for, from `prepared_for`."""
    if isinstance(model, PreparedSymbolicModel):
        family = model.loaded(scheduling.stages)
        return Request(model.name, family, arch, dtype, host, scheduling)
    with step(f"loading {model.name}"):
        loaded = STANDARD.load(model.proto, model.name, scheduling.stages)
    return Request(model.name, loaded, arch, dtype, host, scheduling)


def batched(program: Program, model: onnx.ModelProto) -> Program:
    """`program`, whose inputs say which of their axes is the batch, so that it knows its batch."""
    axes = {name: role.axis for name, role in infer_roles(model).roles.items()}
    inputs = (replace(port, batch=axes.get(port.name)) for port in program.inputs)
    return replace(program, inputs=tuple(inputs))


def states(model: SourceModel) -> dict[str, str]:
    """Inputs of `model` that are a state, each with the output that it is in the next inference.

    A chain of inferences hands these on (docs/state.md):

        outputs = execute(program, token | cache, arch)
        cache = {given: outputs[made] for given, made in states(model).items()}

    They are told as `archgen models FILE` shows: by what operators do with them, and by names.
    """
    expect("model", model, SourceModel, _NETWORK)
    return states_of(model.proto)


def states_of(model: onnx.ModelProto) -> dict[str, str]:
    """The same for a network as ONNX has it."""
    roles = infer_roles(model).roles
    return {name: role.becomes for name, role in roles.items() if role.becomes is not None}


def commands(
    program: Program, arch: Arch | None = None, *, dims: Mapping[str, int] | None = None,
    expand: bool = False, limit: int = 100_000,
) -> pd.DataFrame:  # fmt: skip
    """The commands of `program`: by row queue, opcode, control words, tile, sizes and intervals.

    `archgen explain columns` lists the columns with their units. With `arch` the program is run on
    it, and each command has its start, who made what it reads, and the interval between them: the
    cycles from the end of the last write of any byte from the first to the last of its operands, to
    its start.

    Args:
        program: from `compile_model` or `read_assembly`.
        arch: the machine; None: times and producers stay missing.
        dims: each length that the program leaves open, for the commands that its front end makes
            then; None: they have terms in lengths, and times and turns are those of the longest.
        expand: whether each turn of each loop is a row; otherwise a row is what one instruction
            stands for, with its loops and what these add to its addresses.
        limit: most rows with `expand`.

    Raises:
        ValueError: the loops stand for more than `limit` commands, or the program is not for
            `dims` (`simmodel.program.sizes.LengthError`).
    """
    expect("program", program, Program, PROGRAM)
    whole = program
    check_open(program)
    if dims:
        program = specialize(program, dims)
    elif expand:
        program = longest(program)
    trace = None if arch is None else traced(program, arch)
    return commands_frame(program, arch, trace, expand, limit, whole)


def execute(program: Program, inputs: Mapping[str, Array], arch: Arch) -> Mapping[str, Array]:
    """Outputs of `program` by name, computed by its own instructions in its own memory.

    Args:
        program: from `compile_model` for this `arch`; lengths that it leaves open are those of the
            inputs.
        inputs: one array for each input of the model, in its shape and element type.
        arch: the machine.

    Raises:
        ValueError: an input is missing or has another shape, or one that is in no range of lengths;
            or an index in the data names a row that there is not (`simmodel.errors.NoSuchRow`,
            with the node).
    """
    expect_run(program, arch)
    if program.registers:
        shapes = {name: np.shape(values) for name, values in inputs.items()}
        check_open(program)
        program = specialize(program, lengths_of(program, shapes))
        verify(program, arch)
    return run(program, inputs, arch, run_node).outputs


# Exploration: what the verbs do. A study is the path of a study file, or a mapping with the same
# content: {"archs": "soma-edge", "models": "squeezenet", "explore": {"parameters": {...}}}.


def explore(
    study: Given, *, trials: int | None = None, running: Running = Running(),
    observe: Observer | None = None, **fields: Any,
) -> ExplorationResult:  # fmt: skip
    """The machines of a space that no other one beats.

    Args:
        study: with a section `explore`.
        trials: machines to look at; default: what the study says.
        running: worker processes, the folder for points, journal, frames and machines, bounds.
        observe: called after each point, estimates included.
        fields: fields of `Running` by name; they overrule the record: `out="found", jobs=4`.

    Raises:
        StudyError: with every mistake in the study, before anything runs; that Optuna is missing.
        TypeError: a keyword that is no field of `Running`.
    """
    plan = load_exploration(study, trials)
    (running,) = with_fields(fields, running)
    found = search(plan, EvaluationTools(running, observe))
    if running.out is not None:
        save_found(found, Path(running.out), running.plots)
    return found


def smallest_machine(
    study: Given, target: str, *, by: str = AREA, exact: bool = False, running: Running = Running(),
    observe: Observer | None = None, **fields: Any,
) -> Answer:  # fmt: skip
    """The smallest machine of a space that does what is asked.

    Args:
        study: with a section `explore`, whose constraints hold as well.
        target: constraints separated by commas: `throughput_ips >= 30`.
        by: the column that it has least of.
        exact: whether machines are run too whose estimates miss the target by far.

    The other arguments, and what is raised, are those of `explore`.
    """
    (running,) = with_fields(fields, running)
    answer = smallest(load_exploration(study), target, EvaluationTools(running, observe), by, exact)
    if running.out is not None:
        save_answer(answer, Path(running.out))
    return answer


def sensitivity(
    study: Given, *, by: str | None = None, running: Running = Running(),
    observe: Observer | None = None, **fields: Any,
) -> Sensitivities:  # fmt: skip
    """What each field of a machine is worth, changed alone and two at a time.

    Args:
        study: with a section `sensitivity`.
        by: how much larger and smaller fields become that it lists no values of: `10%`, `1.5x`;
            default: what the study says.

    The other arguments are those of `explore`. Raises StudyError with every mistake in the study,
    ValueError for a `by` that is no step.
    """
    (running,) = with_fields(fields, running)
    factor = None if by is None else factor_of(by)
    found = sensitivities(load_sensitivity_plan(study, factor), EvaluationTools(running, observe))
    if running.out is not None:
        save_sensitivities(found, Path(running.out), running.plots)
    return found
