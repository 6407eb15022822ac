"""The command `archgen`: mounts its verbs, whose modules are imported only when they are called.

The one idea: starting takes a few hundredths of a second, because a verb's module (and numpy,
pandas, onnx behind it) is imported by name when the verb is used. This is the only module that
imports inside functions. What a user did wrong ends as `error: ...` and exit code 2, never as a
traceback; an error of archgen's own ends as one line that names a file to report, and exit code 1.
"""

from __future__ import annotations

import atexit
import errno
import gc
import sys
from difflib import get_close_matches
from importlib import import_module

import click

from archgen.process.start import collect_rarely, configure_messages, single_threaded
from simmodel.errors import UserError

VERBS = {
    "check": ("machines", "check architecture files, print peaks"),
    "lint": ("machines", "is this machine plausible: sizes, ports, engines that cannot be fed"),
    "isa": ("isa", "list the instruction forms of a machine"),
    "study": ("study", "compile, check and simulate models on architectures"),
    "explore": ("explore", "search a space of machines for the best ones"),
    "sensitivity": ("explore", "what each field of a machine is worth"),
    "calibrate": ("explore", "fit what a machine assumes to measured times"),
    "report": ("results", "the study in a folder as one HTML page"),
    "results": ("results", "list the finished points of a study"),
    "compare": ("compare", "what got better or worse between studies, and why"),
    "compile": ("compile", "print the program that the compiler makes, or write it as a file"),
    "run": ("run", "run such a file on inputs"),
    "disasm": ("run", "print what such a file holds"),
    "models": ("models", "list the networks of the zoo, or the inputs of a model and their roles"),
    "explain": ("explain", "fields, columns, plots, stalls, laws: the words of files and results"),
    "schema": ("machines", "JSON Schema of architecture files"),
}
"""Name of each verb -> its module in `archgen.cli`, and its line in the overview."""


class Verbs(click.Group):
    """A group whose commands are found by the name of their module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs in the order of `VERBS`."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command, imported now."""
        if cmd_name not in VERBS:
            return None
        module, _ = VERBS[cmd_name]
        found: click.Command = getattr(import_module(f"archgen.cli.{module}"), cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As any group, with a guess for a verb that is misspelt."""
        near = get_close_matches(args[0].lower(), VERBS, n=1)
        if args[0] not in VERBS and near:
            ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """As any group; Ctrl-C is no bad result."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(import_module("archgen.cli.terminal").ExitCode.INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The overview, from `VERBS` alone so that `--help` imports no verb."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, said) for name, (_, said) in VERBS.items()])


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "--version", package_name="archgen", message="archgen %(version)s")
def cli() -> None:
    """Which accelerator is best for this network?

    One YAML file describes a machine; archgen compiles a network for it, executes and checks the
    instructions, simulates them, and compares machines.

    \b
    archgen study soma-edge ethos-u65-like --model resnet50 --out results
    """


def main() -> None:
    """Entry point of the console script; exits with 0, 1 (a result is bad) or 2 (wrong input)."""
    single_threaded()
    collect_rarely()
    configure_messages()
    atexit.register(gc.freeze)  # what is left ends with the process: looking at it takes seconds
    try:
        cli(prog_name="archgen")
    except Exception as mistake:
        sys.exit(report_error(mistake))


def report_error(mistake: Exception) -> int:
    """Say on standard error what went wrong, with a file to attach where archgen is to blame; the
    exit code."""
    if not is_user_error(mistake):
        report = import_module("archgen.process.internal_errors")
        path = report.saved(mistake, {"command": " ".join(sys.argv)})
        click.echo(f"error: {report.error_line(mistake)}; please report it with {path}", err=True)
        return 1
    for line in str(mistake).splitlines():
        click.echo(f"error: {line}", err=True)
    return 2


def is_user_error(mistake: Exception) -> bool:
    """Whether `mistake` is about what the user gave rather than about archgen."""
    full = isinstance(mistake, OSError) and mistake.errno == errno.ENOSPC
    return full or isinstance(mistake, UserError)
