"""A verb whose work runs a user's model, in a process that can be ended.

The one idea: what the work prints comes back as text and is printed here, so that pipes, tests and
terminals see what they would have seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any, TextIO, TypeVar

import click

from archgen.cli.main import complain, is_user_error
from archgen.cli.options import Size, seconds_of
from archgen.process.guard import Exceeded, ResourceLimits, guarded

Verb = TypeVar("Verb", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        callback=seconds_of,
        metavar="SECONDS",
        help="Give up after this long.  [default: no step that runs the model takes more than 600]",
    ),
    click.option(
        "--memory",
        type=Size(),
        metavar="SIZE",
        help="Most data that may be taken, such as 8GiB.  [default: three quarters of the "
        "machine's]",
    ),
)


def bounds_options(verb: Verb) -> Verb:
    """Adds --timeout and --memory."""
    for option in reversed(_OPTIONS):
        verb = option(verb)
    return verb


class _CapturedStream(StringIO):
    """Text instead of what would have been printed on `like`."""

    def __init__(self, like: TextIO) -> None:
        super().__init__()
        self._like = like

    def isatty(self) -> bool:
        """As the other one: colours depend on it."""
        return self._like.isatty()


@dataclass(frozen=True)
class _CapturedOutput:
    out: str
    err: str
    code: int


def printed(work: Callable[[], None], bounds: ResourceLimits) -> None:
    """What `work` prints, and its exit code; 1 when it takes too much, which is said. Raises what
    `work` raises."""
    try:
        said = guarded(lambda: _run_captured(work), bounds)
    except Exceeded as mistake:
        said = _CapturedOutput("", f"no result: {mistake}\n", 1)
    click.echo(said.out, nl=False)
    click.echo(said.err, nl=False, err=True)
    if said.code:
        sys.exit(said.code)


def _run_captured(work: Callable[[], None]) -> _CapturedOutput:
    out, err, code = _CapturedStream(sys.stdout), _CapturedStream(sys.stderr), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            work()
        except SystemExit as end:
            code = int(end.code or 0)
        except click.ClickException as mistake:
            mistake.show(err)
            code = mistake.exit_code
        except Exception as mistake:
            if is_user_error(mistake) or isinstance(mistake, MemoryError):
                raise
            code = complain(mistake)  # here, where its frames are
    return _CapturedOutput(out.getvalue(), err.getvalue(), code)
