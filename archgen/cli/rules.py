"""`--ignore RULE` of the verbs that hold machines against what can be built and fed."""

from __future__ import annotations

import click

from archgen.lint import RULES
from archgen.schema.mistakes import guess


def _rules(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> list[str]:
    """Names of rules, several separated by commas; unknown ones are refused together."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    wrong = [f"{name!r}{guess(name, RULES)}" for name in names if name not in RULES]
    if wrong:
        known = "`archgen explain lint` lists all"
        raise click.BadParameter(f"no rule is called {', nor '.join(wrong)}; {known}")
    return names


ignore_option = click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="RULE",
    callback=_rules,
    help="Leave a rule of `archgen lint` out; may be repeated, or several separated by commas.",
)
