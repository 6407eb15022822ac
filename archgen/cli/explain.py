"""`archgen explain`: the words in the results, each from the place where it is defined."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable

import click

from archgen.columns import COLUMNS, LAYER_COLUMNS, LEVEL_COLUMNS, SPAN_COLUMNS, Column
from archgen.stalls import STALLS
from simmodel import machine

_INDENT, _WIDTH = 26, 72


def _item(name: str, text: str) -> str:
    first, *rest = textwrap.wrap(text, _WIDTH)
    lines = [f"{name:{_INDENT}}{first}", *(" " * _INDENT + line for line in rest)]
    return textwrap.indent("\n".join(lines), "  ")


def _column(known: Column) -> str:
    unit = f"[{known.unit}] " if known.unit else ""
    return _item(known.name, unit + known.meaning)


_FRAMES = {
    "Study.frame, results.csv and results.parquet: one row for each point": COLUMNS,
    "Study.layers and runs/*.layers.parquet: one row for each node of a point": LAYER_COLUMNS,
    "Study.spans and runs/*.spans.parquet: when each engine worked for which node": SPAN_COLUMNS,
    "Study.levels and runs/*.levels.parquet: levels over time, in bins": LEVEL_COLUMNS,
}


def _columns() -> str:
    parts = ["\n".join((head, "", *map(_column, known))) for head, known in _FRAMES.items()]
    return "\n\n".join(parts)


def _stalls() -> str:
    parts = ["Why an engine did not compute; every idle cycle has exactly one cause", ""]
    for cause, stall in STALLS.items():
        parts.append(_item(cause, f"{stall.meaning}. Levers: {stall.levers}"))
    return "\n".join(parts)


def _laws() -> str:
    return inspect.cleandoc(machine.__doc__ or "")


TOPICS: dict[str, Callable[[], str]] = {"columns": _columns, "stalls": _stalls, "laws": _laws}


@click.command()
@click.argument("topic", type=click.Choice(list(TOPICS)))
def explain(topic: str) -> None:
    """Explain the columns of the results, the causes of stalls, or the laws of the machine.

    \b
    archgen explain columns
    """
    click.echo(TOPICS[topic]())
