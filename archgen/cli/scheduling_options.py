"""Options of the verbs that compile: how networks are scheduled, and options of passes.

The one idea: they say which words there are, which the compiler's own tables know; verbs that
compile nothing do without them and are quick.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from archgen.cli.options import NamesParam, Verb
from archgen.scheduling import DEFAULT, Scalar, Settings, combinations_of
from compiler.api import EFFORTS, HALOS, OBJECTIVES, STRATEGIES


def _words_option(name: str, help: str, known: Iterable[object]) -> Callable[[Verb], Verb]:
    default = DEFAULT.columns[name]
    text = f"{help}: {', '.join(map(str, known))}."
    return click.option(
        f"--{name}", type=NamesParam(), default=str(default), show_default=True, help=text
    )


_SCHEDULING = (
    _words_option("fusion", "How layers are grouped", STRATEGIES),
    _words_option("halo", "What neighbouring tiles of a group share", HALOS),
    _words_option("objective", "What schedules are compared by", OBJECTIVES),
    _words_option("effort", "How long the compiler may search", EFFORTS),
)


class PassOption(click.ParamType[tuple[str, list[Scalar]]]):
    """`option=value,value`: an option of a pass; the compiler knows which there are, and what they
    take: never nothing, so that one without a value is among the mistakes of all."""

    name = "option=value"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, list[Scalar]]:
        """The option and its values."""
        name, _, values = str(value).partition("=")
        return name.strip(), [_scalar(part.strip()) for part in values.split(",")]


def _scalar(text: str) -> Scalar:
    """A number, true, false or null as it is written; otherwise a word."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | None) else text


def _settings(
    context: click.Context, option: click.Parameter, pairs: Sequence[tuple[str, list[Scalar]]]
) -> tuple[Settings, ...]:
    """Every combination of the values given."""
    del context, option
    if twice := [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]:
        raise click.UsageError(f"--pass {twice[0]} is given twice; several values go by commas")
    return tuple(combinations_of(dict(pairs)))


_PASSES = click.option(
    "--pass", "passes", multiple=True, type=PassOption(), callback=_settings,
    help="An option of a pass; `archgen explain passes` lists them. May be repeated.",
)  # fmt: skip


def scheduling_options(verb: Verb) -> Verb:
    """Adds --fusion, --halo, --objective and --effort, each a tuple of words, and --pass, which
    becomes combinations of settings."""
    verb = _PASSES(verb)
    for option in reversed(_SCHEDULING):
        verb = option(verb)
    return verb


def as_efforts(words: Iterable[str]) -> tuple[Any, ...]:
    """Levels of effort as numbers; what is no number is left as it is, to be reported."""
    return tuple(int(w) if w.isascii() and w.isdigit() else w for w in words)
