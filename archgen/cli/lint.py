"""`archgen lint`: is this machine plausible?

The one idea: `check` says whether a file can be read; this says whether what it describes could be
built and fed, each time beside what published chips have.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

import click

from archgen.cli.options import extension_option, ignore_option
from archgen.extensions import activate, extension
from archgen.lint import LintFinding, findings, located
from archgen.lint.rules import SEVERITIES
from archgen.schema.load import load_files

_WIDTH, _INDENT = 96, "    "


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="ARCH...")
@ignore_option
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings too.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON list.")
@extension_option
def lint(
    files: tuple[str, ...],
    ignored: list[str],
    strict: bool,
    as_json: bool,
    extensions: tuple[str, ...],
) -> None:  # fmt: skip
    """Hold machines against what can be built and fed.

    ARCH is a path, a pattern or the name of a shipped architecture. Each finding has its place in
    the file, the figure, what is usual, and a published chip; `archgen explain lint` lists the
    rules with their limits and sources. What is said of the machines of a sweep, `archgen study`
    shows, also with --dry-run.

    \b
    archgen lint archs/*.yaml
    archgen lint my.yaml --ignore vector-real --json

    Exit code 0: notes and warnings at most. 1: an error, with --strict also a warning. 2: a file
    is wrong.
    """
    activate(tuple(map(extension, extensions)))
    loaded, mistakes = load_files(files)
    for mistake in mistakes:
        click.echo(str(mistake), err=True)
    if mistakes:
        sys.exit(2)
    found = [located(each, one.tree) for one in loaded for each in findings(one.arch, ignored)]
    if as_json:
        click.echo(json.dumps([each.record() for each in found], indent=2))
    else:
        for line in (line for each in found for line in finding_lines(each)):
            click.echo(line)
        click.echo(summary(found, len(loaded)))
    bad = ("error", "warning") if strict else ("error",)
    sys.exit(1 if any(each.rule.severity in bad for each in found) else 0)


def finding_lines(found: LintFinding) -> Iterator[str]:
    """The lines about one finding: place, machine, field and figure; what is usual; a chip."""
    yield f"{found.at}: {found.rule.severity}: {found.arch}: {found.path} [{found.name}]"
    for text in (
        found.sight.figure, f"usual: {found.sight.usual}", f"built: {found.sight.chip}",
    ):  # fmt: skip
        if not text.endswith(": "):
            yield textwrap.fill(text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)


def summary(found: Sequence[LintFinding], machines: int) -> str:
    """How many of each severity."""
    counts = Counter(each.rule.severity for each in found)
    words = [f"{counts[name]} {name}{'s' * (counts[name] != 1)}" for name in SEVERITIES]
    return f"{', '.join(words)} about {machines} machine{'s' * (machines != 1)}"
