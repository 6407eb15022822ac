"""`archgen explain`: the words of files and results, each from the place where it is defined.

The one idea: what is explained is data (`archgen.cli.topics`); here it becomes text for a terminal
or, with `--markdown`, the tables of the documentation, so that both say the same.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

import click

from archgen.cli.options import Step
from archgen.cli.reference import reference
from archgen.cli.topics import SECTIONS, Entry, Section, laws, pictures
from archgen.cli.words import meant, near
from archgen.schema.mistakes import listed
from archgen.schema.steps import TWICE

_INDENT, _WIDTH = 26, 72
TEXTS: dict[str, Callable[[], str]] = {"laws": laws, "cli": reference}
"""Topics that are text as they stand."""
TOPICS = (*SECTIONS, *TEXTS)
AREA = "area"
"""The topic that is about machines."""


@click.command()
@click.argument("topic")
@click.argument("machines", nargs=-1, metavar="[ARCH]...")
@click.option("--markdown", is_flag=True, help="As the documentation shows it.")
@click.option("--sensitivity", is_flag=True, help="Of area: what each field does, changed alone.")
@click.option(
    "--by",
    type=Step(),
    metavar="STEP",
    help="With --sensitivity: how much larger a field becomes: 10%, 1.5x.  [default: 2x]",
)
@click.option("--json", "as_json", is_flag=True, help="Of area: as JSON.")
@click.option(
    "--csv",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Of area: write it to this file.",
)
def explain(
    topic: str,
    machines: tuple[str, ...],
    markdown: bool,
    sensitivity: bool,
    by: float | None,
    as_json: bool,
    csv: Path | None,
) -> None:
    """Explain the words of files and results.

    TOPIC is one of: architecture (every field of architecture files), study (of study files),
    columns, plots, stalls, passes (every option of the compiler), lint (what machines are held
    against), words (terms, and headings of tables), codes (exit codes), laws (the rules of the
    machine's time), cli (every verb); or one word: a column, a field of a file, a heading, a stall,
    an option or a rule; or the name of a pass, which shows what it does to a network.

    `area ARCH...` adds up the silicon of machines (files or names of shipped ones), each term with
    its formula in figures and the fields behind it; with --sensitivity each field is changed alone,
    twice as large (--by 10%: by a tenth) or what is lawful next to that.

    \b
    archgen explain columns
    archgen explain stall_data
    archgen explain "of roofline"
    archgen explain memories.local.size
    archgen explain fold-batch-norm
    archgen explain area soma-edge --sensitivity
    """
    if by is not None and not sensitivity:
        raise click.UsageError("--by says how far --sensitivity changes fields: give that too")
    if topic == AREA and machines:
        area = import_module("archgen.cli.explain_area")  # slow: with pandas
        area.explain_area(machines, (by or TWICE) if sensitivity else None, as_json, csv)
        return
    if machines or sensitivity or as_json or csv is not None:
        options = "--sensitivity, --by, --json, --csv"
        raise click.UsageError(f"{AREA} ARCH... alone takes machines, {options}")
    if topic in SECTIONS:
        write = _as_markdown if markdown else _as_text
        click.echo(write(SECTIONS[topic]()))
    elif topic in TEXTS:
        click.echo(f"```text\n{TEXTS[topic]()}\n```" if markdown else TEXTS[topic]())
    elif (picture := pictures().get(topic)) is not None:
        click.echo(picture)
    elif found := meant(topic):
        click.echo(_as_markdown(found) if markdown else _as_text(found))
    else:
        known = [*get_close_matches(topic, [*TOPICS, AREA, *pictures()]), *near(topic)]
        hint = f"; did you mean {listed(known)}?" if known else ""
        topics = f"topics: {', '.join((*TOPICS, AREA))}"
        raise click.BadParameter(f"nothing is called {topic!r}{hint} ({topics})")


def _as_text(sections: Sequence[Section]) -> str:
    return "\n\n".join("\n".join(_lines(section)) for section in sections)


def _lines(section: Section) -> Iterator[str]:
    yield section.title
    if section.about:
        yield textwrap.fill(section.about, _INDENT + _WIDTH)
    yield from ("", *map(_item, section.entries)) if section.entries else ()


def _item(entry: Entry) -> str:
    said = f"[{entry.kind}] {entry.meaning}" if entry.kind else entry.meaning
    first, *rest = textwrap.wrap(said, _WIDTH) or [""]
    name = f"{entry.name:{_INDENT}}"
    head = [name + first] if len(entry.name) < _INDENT else [entry.name, " " * _INDENT + first]
    return textwrap.indent("\n".join([*head, *(" " * _INDENT + line for line in rest)]), "  ")


def _as_markdown(sections: Sequence[Section]) -> str:
    return "\n\n".join("\n".join(_table(section)) for section in sections)


def _table(section: Section) -> Iterator[str]:
    """A heading and a table, without columns that are empty throughout."""
    yield f"### {_code(section.title)}"
    yield ""
    if section.about:
        yield from (textwrap.fill(section.about, 100), "")
    rows = [(f"`{entry.name}`", entry.kind, entry.meaning) for entry in section.entries]
    if not rows:
        yield "No options."
        return
    used = [place for place in range(3) if any(row[place] for row in rows)]
    yield _row([section.headings[place] for place in used])
    yield _row(["---"] * len(used))
    for row in rows:
        yield _row([row[place] for place in used])


def _code(title: str) -> str:
    """A title that is a path of a file is set as code."""
    return f"`{title}`" if " " not in title.replace(", ", "") else title


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Text that neither ends its cell nor is taken for HTML."""
    return text.replace("|", "\\|") if text.startswith("`") else _outside_code(text)


def _outside_code(text: str) -> str:
    parts = text.replace("|", "\\|").split("`")
    parts[::2] = (part.replace("<", "&lt;") for part in parts[::2])
    return "`".join(parts)
