"""What can be wrong with a model that a user asked for.

The one idea: an error says everything at once, and whether the model cannot be used at all or only
not at the batch that was asked for: then other points of a study go on.
"""

from __future__ import annotations

import shlex

from simmodel.errors import UserError


class ModelError(UserError):
    """A model that cannot be opened, bound or run, and what the user can do about it;
    `mistakes` holds each thing that is wrong by itself."""

    def __init__(self, *mistakes: str) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(mistakes))


class BatchError(ModelError):
    """A model that runs, but not at the batch that was asked for."""


def option(flag: str, name: str, value: str) -> str:
    """`--dim 'my axis'=<size>`: an option as a shell takes it, whatever the file calls things."""
    return f"{flag} {shlex.quote(name)}={value}"
