"""A verb whose work runs a user's model, in a process that can be ended.

The one idea: what the work prints comes back as text and is printed here, so that pipes, tests and
terminals see what they would have seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TextIO

import click

from archgen.cli.main import is_user_error, report_error
from archgen.cli.options import bounds_options
from archgen.process.guard import Exceeded, ResourceLimits, guarded

guarding_options = bounds_options(
    "Give up after this long.",
    "Most data that may be taken, such as 8GiB.  [default: three quarters of the machine's]",
)
"""Adds --timeout and --memory."""


class _CapturedStream(StringIO):
    """Text instead of what would have been printed on `like`."""

    def __init__(self, like: TextIO) -> None:
        super().__init__()
        self._like = like

    def isatty(self) -> bool:
        """As the other one: colours depend on it."""
        return self._like.isatty()


def run_guarded(work: Callable[[], None], bounds: ResourceLimits) -> None:
    """What `work` prints, and its exit code; 1 when it takes too much, which is said. Raises what
    `work` raises."""
    try:
        out, err, code = guarded(lambda: _captured(work), bounds)
    except Exceeded as mistake:
        out, err, code = "", f"no result: {mistake}\n", 1
    click.echo(out, nl=False)
    click.echo(err, nl=False, err=True)
    if code:
        sys.exit(code)


def _captured(work: Callable[[], None]) -> tuple[str, str, int]:
    """What `work` prints on both streams, and its exit code."""
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
            code = report_error(mistake)  # here, where its frames are
    return out.getvalue(), err.getvalue(), code
