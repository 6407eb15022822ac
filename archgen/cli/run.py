"""`archgen run`: a loadable on inputs, without the network and the compiler that it came from.

The one idea: what is executed, and simulated where that is asked for, are the bytes of the file:
its own instructions on its own machine. Several inputs are a chain of inferences, in which each
state is what the one before made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from archgen.api import execute, simulate
from archgen.cli.guarded import bounds_options, printed
from archgen.cli.options import as_dims, dim_option, extension_option
from archgen.extensions import activate, extension
from archgen.files import write_atomically
from archgen.loadable import Loaded, WrongInputs, load, matched, same_machine, shown
from archgen.models.arrays import arrays_in
from archgen.models.extents import Extents
from archgen.process.guard import Bounds
from archgen.scheduling import OptionError
from archgen.schema import load_arch
from simmodel.dtype import NAMES, NUMPY
from simmodel.errors import HostFailed, NoSuchRow
from simmodel.lengths import LengthError, settled
from simmodel.loadable import LoadableError
from simmodel.program import Program
from simmodel.verify import VerifyError, verify

Array = NDArray[Any]
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("file", metavar="FILE", type=_FILE)
@click.option(
    "--input", "inputs", multiple=True, type=_FILE, required=True,
    help=".npz file with an array for each input. Several are inferences one after the other.",
)  # fmt: skip
@click.option(
    "-o", "--output", "outputs", multiple=True, type=_FILE,
    help=".npz file for the outputs: of the last inference, or one for each.",
)  # fmt: skip
@dim_option()
@click.option("--arch", help="Refuse the loadable unless it is for this machine.")
@click.option("--simulate", "timed", is_flag=True, help="Also say how many cycles it takes.")
@extension_option
@bounds_options
def run(
    file: Path,
    inputs: Sequence[Path],
    outputs: Sequence[Path],
    dims: Sequence[tuple[str, Extents]],
    arch: str | None,
    timed: bool,
    extensions: Sequence[str],
    timeout: float | None,
    memory: int | None,
) -> None:
    """Run a loadable, as `archgen compile -o FILE.npu` writes it.

    Names, shapes and element types of the inputs have to be those of the file. Inputs that are a
    state may be left out: they are what the inference before made, at first zeros.

    \b
    archgen compile soma-edge --model squeezenet -o squeezenet.npu
    archgen run squeezenet.npu --input x.npz --output y.npz

    Exit code 0: it ran. 2: the file or an input is wrong, which is said.
    """
    if len(outputs) not in (0, 1, len(inputs)):
        raise click.UsageError(f"{len(outputs)} times --output for {len(inputs)} times --input")
    lengths = as_dims(dims)

    def work() -> None:
        activate(tuple(map(extension, extensions)))
        loaded = _loaded(file)
        if arch is not None:
            same_machine(loaded, load_arch(arch), arch)
        program = _settled(loaded, lengths, file)
        click.echo(
            f"{file}: {program.name} on {loaded.arch.name}, fingerprint {loaded.fingerprint[:16]}"
        )
        _chain(program, loaded, inputs, outputs)
        if timed:
            cycles = simulate(program, loaded.arch).cycles
            click.echo(f"{cycles} cycles, {cycles / loaded.arch.clock * 1e3:.4g} ms")

    printed(work, Bounds(timeout, memory))


def _loaded(file: Path) -> Loaded:
    try:
        return load(file)
    except OSError as mistake:
        raise OptionError([f"{file}: {mistake.strerror}"]) from None


def _settled(loaded: Loaded, lengths: dict[str, int], file: Path) -> Program:
    """The program for the lengths that are asked for."""
    try:
        program = settled(loaded.program, lengths)
        if program is not loaded.program:
            verify(program, loaded.arch)
    except LengthError as wrong:
        raise OptionError([f"--dim: {wrong}"]) from None
    except VerifyError as wrong:
        raise LoadableError(None, f"{file}: {wrong}") from None
    return program


def _chain(
    program: Program, loaded: Loaded, inputs: Sequence[Path], outputs: Sequence[Path]
) -> None:
    """One inference after the other."""
    written = outputs if len(outputs) == len(inputs) else [None] * (len(inputs) - 1) + [*outputs]
    state = {
        port.name: np.zeros(port.shape, NUMPY[port.dtype])
        for port in program.inputs
        if port.name in loaded.states
    }
    for path, output in zip_longest(inputs, written):
        given = arrays_in(path, "--input")
        try:
            made = execute(program, matched(program, {**state, **given}), loaded.arch)
        except (WrongInputs, NoSuchRow, HostFailed) as wrong:
            raise OptionError(f"{path}: {line}" for line in str(wrong).splitlines()) from None
        state = {name: made[after] for name, after in loaded.states.items()}
        if output is not None:
            _write(output, made)
        else:
            _say(path, made)


def _write(path: Path, made: Mapping[str, Array]) -> None:
    def store(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **made)

    try:
        write_atomically(path, store)
    except OSError as mistake:
        raise OptionError([f"--output {path}: {mistake.strerror}"]) from None
    _say(path, made)


def _say(path: Path, made: Mapping[str, Array]) -> None:
    arrays = (f"{name} {shown(NAMES[a.dtype], a.shape)}" for name, a in made.items())
    click.echo(f"{path}: {', '.join(arrays)}")
