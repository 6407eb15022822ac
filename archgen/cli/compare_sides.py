"""What `archgen compare` compares: folders as they are, architecture files by running them.

The one idea: a file's results are a study like any other, in a folder of its own that the next
comparison finds again, so only what has changed is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from archgen.cache import cache_dir
from archgen.cli.options import Batches, dtype_option
from archgen.cli.running import OUT, watched
from archgen.schema.load import load_all
from archgen.studies.design import Design, StudyError, designed
from archgen.studies.options import Running, StudyOptions
from archgen.studies.revisions import ArchFile, arch_file, laid_out
from archgen.studies.sides import Side, side_of
from archgen.studies.sweep import run_study

Verb = TypeVar("Verb", bound=Callable[..., Any])
FOLDER = OUT / "compare"
_OPTIONS = (
    click.option(
        "-m",
        "--model",
        "models",
        multiple=True,
        metavar="MODEL",
        help="Of architecture files: the networks to run.  May be repeated.",
    ),
    click.option(
        "-b",
        "--batch",
        "batches",
        type=Batches(),
        help="Of architecture files: batch sizes, separated by commas.",
    ),
    dtype_option,
    click.option(
        "--effort",
        type=click.IntRange(0, 3),
        default=1,
        show_default=True,
        help="Of architecture files: how long the compiler searches.",
    ),
    click.option(
        "--verify/--no-verify",
        default=True,
        help="Of architecture files: execute the instructions and compare with ONNX Runtime.",
    ),
    click.option(
        "-j", "--jobs", type=click.IntRange(1), default=1, show_default=True,
        help="Of architecture files: worker processes.",
    ),
    click.option(
        "-o",
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        default=FOLDER,
        show_default=True,
        help="Of architecture files: folder for their results, one in it for each.",
    ),
)  # fmt: skip


def sides_options(verb: Verb) -> Verb:
    """Adds what says how architecture files are run."""
    for option in reversed(_OPTIONS):
        verb = option(verb)
    return verb


@dataclass(frozen=True)
class Runs:
    """How architecture files are run."""

    models: tuple[str, ...]
    batches: tuple[int, ...] | None
    dtype: str | None
    effort: int
    verify: bool
    jobs: int
    out: Path

    def design(self, path: Path) -> Design:
        """The study of one architecture file."""
        options = StudyOptions(effort=self.effort, verify=self.verify)
        return designed(str(path), self.models, self.batches, self.dtype, options)


def sides(texts: Sequence[str], runs: Runs) -> list[Side]:
    """The studies that `texts` name; architecture files are run. Raises StudyError with what is
    wrong with any of them, before anything is run."""
    files = [arch_file(text) for text in texts]
    if any(files) and not runs.models:
        raise click.UsageError("Missing option '-m' / '--model': architecture files run networks")
    if runs.models and not any(files):
        raise click.UsageError("--model is for architecture files; folders have their results")
    found: list[Side | tuple[ArchFile, Path, Design]] = []
    wrong: list[str] = []
    for number, (text, file) in enumerate(zip(texts, files, strict=True), 1):
        try:
            found.append(side_of(text, number) if file is None else _planned(file, runs))
        except StudyError as mistake:
            wrong += mistake.mistakes
    if wrong:
        raise StudyError(dict.fromkeys(wrong))
    return [each if isinstance(each, Side) else _run(*each, runs) for each in found]


def _planned(file: ArchFile, runs: Runs) -> tuple[ArchFile, Path, Design]:
    path, word = laid_out(file, cache_dir() / "revisions")
    _, mistakes = load_all([str(path)])
    if mistakes:
        raise StudyError(f"{file.text}: {mistake}" for mistake in mistakes)
    return file, runs.out / word, runs.design(path)


def _run(file: ArchFile, folder: Path, design: Design, runs: Runs) -> Side:
    running = Running(jobs=runs.jobs, out=folder, plots=False)
    result = watched(lambda seen: run_study(design, running, seen), folder)
    return Side(file.text, result, one_machine=True)
