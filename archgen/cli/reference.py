"""The reference of the command line: what every verb's `--help` says, one after the other.

The one idea: it is made by asking the commands themselves, so a page of the documentation that
holds it cannot drift from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import click

WIDTH = 96


def reference() -> str:
    """The overview, then each verb, as their `--help` prints it at a fixed width."""
    return "\n\n\n".join(_helps())


def _helps() -> Iterator[str]:
    group: click.Group = import_module("archgen.cli.main").cli
    context = _context(group, "archgen", None)
    yield group.get_help(context).rstrip()
    for name in group.list_commands(context):
        verb = group.get_command(context, name)
        if verb is not None and not verb.hidden:
            yield verb.get_help(_context(verb, name, context)).rstrip()


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
