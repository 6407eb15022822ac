"""`archgen explain`: the words of files and results, from where they are defined.

The one idea: what is explained is data (`archgen.cli.topics`); here it becomes text for a terminal
or, with `--markdown`, the tables of the documentation, so that both say the same.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module

import click

from archgen.cli.options import EveryMistake, parsed
from archgen.cli.topics import SECTIONS, ExplainedTerm, Section, laws, pictures, reference
from archgen.schema.tree import listed
from archgen.schema.variants import TWICE, factor_of

# Every word of files and results by its full name, and what somebody who asks for one means.

_FIELD, _STALL = "arch.", "stall_"
_HOLE = re.compile("<[a-z]+>")
_MOST = 4
"""Near words that are named."""


@dataclass(frozen=True)
class Word:
    """One entry of a topic under its full name."""

    name: str
    topic: str
    section: Section
    """What explains it: a section with this entry alone, or a part of a file with its fields."""

    @property
    def spellings(self) -> list[str]:
        """How it may be written: fields of machines and stalls also as columns have them, headings
        that have two spellings in either."""
        names = self.name.split(" / ") if self.topic == "words" else [self.name]
        start = {"architecture": _FIELD, "stalls": _STALL}.get(self.topic)
        return names if start is None else [*names, start + self.name]


def matching_sections(asked: str) -> list[Section]:
    """What explains `asked`: in each topic words of that full name, else those that end in it."""
    found = _closest([w for w in _all_words() if any(_fits(asked, name) for name in w.spellings)])
    topics = {word.topic for word in found}
    found += [w for w in _all_words() if w.topic not in topics and w.name.endswith(f".{asked}")]
    titles: dict[Section, list[str]] = {}  # what says the same is one, under all titles
    for word in found:
        titles.setdefault(replace(word.section, title=""), []).append(word.section.title)
    return [replace(s, title="; ".join(dict.fromkeys(own))) for s, own in titles.items()]


def similar_names(asked: str) -> list[str]:
    """Full names that are spelled much like `asked`, or end in something that is."""
    names = list(dict.fromkeys(word.name for word in _all_words()))
    folded = asked.lower().removeprefix(_FIELD)
    found = get_close_matches(folded, names, n=_MOST, cutoff=0.75)
    ends = {name.rpartition(".")[2] for name in names}
    for end in get_close_matches(folded.rpartition(".")[2], ends, n=2, cutoff=0.75):
        found += [name for name in names if name.rpartition(".")[2] == end]
    return list(dict.fromkeys(found))[:_MOST]


@cache
def _all_words() -> tuple[Word, ...]:
    return tuple(_listed())


def _listed() -> Iterator[Word]:
    for topic, made in SECTIONS.items():
        for section in made():
            titled = replace(section, title=f"{topic}: {section.title}")
            paths = section.title.split(", ") if topic in ("architecture", "study") else [""]
            for path in paths:
                inside = "" if path in ("", "top level") else f"{path}."
                if inside:
                    yield Word(path, topic, titled)
                for entry in section.entries:
                    name = f"{inside}{entry.name}"
                    alone = replace(titled, about="", entries=(replace(entry, name=name),))
                    yield Word(name, topic, alone)


def _fits(asked: str, name: str) -> bool:
    """Whether `asked` is `name`, in which `<word>` stands for one part and `<field>` for more;
    headings begin with capitals in places, and may be broken into lines."""
    spelled = re.escape(name).replace("<field>", ".+")
    one_line = " ".join(asked.split())
    return re.fullmatch(_HOLE.sub("[^.]+", spelled), one_line, re.IGNORECASE) is not None


def _closest(found: list[Word]) -> list[Word]:
    """Of each topic the words with most letters of their own: `stall_<cause>_cycles` rather than
    `stall_<cause>`."""
    letters = [len(_HOLE.sub("", word.name)) for word in found]
    most: dict[str, int] = {}
    for word, count in zip(found, letters, strict=True):
        most[word.topic] = max(count, most.get(word.topic, 0))
    return [word for word, n in zip(found, letters, strict=True) if n == most[word.topic]]


_INDENT, _WIDTH = 26, 72
TEXTS: dict[str, Callable[[], str]] = {"laws": laws, "cli": reference}
"""Topics that are text as they stand."""
TOPICS = (*SECTIONS, *TEXTS)
AREA = "area"
"""The topic that is about machines."""


@click.command(cls=EveryMistake)
@click.argument("topic")
@click.argument("machines", nargs=-1, metavar="[ARCH]...")
@click.option("--markdown", is_flag=True, help="As the documentation shows it.")
@click.option("--sensitivity", is_flag=True, help="Of area: what each field does, changed alone.")
@click.option(
    "--by", callback=parsed(factor_of), metavar="STEP",
    help="With --sensitivity: how much larger a field becomes: 10%, 1.5x.  [default: 2x]",
)  # fmt: skip
def explain(
    topic: str, machines: tuple[str, ...], markdown: bool, sensitivity: bool, by: float | None
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
        area.explain_area(machines, (by or TWICE) if sensitivity else None)
        return
    if machines or sensitivity:
        raise click.UsageError(f"{AREA} ARCH... alone takes machines, --sensitivity, --by")
    lines = _markdown_lines if markdown else _lines
    if topic in SECTIONS:
        click.echo("\n\n".join("\n".join(lines(each)) for each in SECTIONS[topic]()))
    elif topic in TEXTS:
        click.echo(f"```text\n{TEXTS[topic]()}\n```" if markdown else TEXTS[topic]())
    elif (picture := pictures().get(topic)) is not None:
        click.echo(picture)
    elif found := matching_sections(topic):
        click.echo("\n\n".join("\n".join(lines(each)) for each in found))
    else:
        known = [*get_close_matches(topic, [*TOPICS, AREA, *pictures()]), *similar_names(topic)]
        hint = f"; did you mean {listed(known)}?" if known else ""
        topics = f"topics: {', '.join((*TOPICS, AREA))}"
        raise click.BadParameter(f"nothing is called {topic!r}{hint} ({topics})")


def _lines(section: Section) -> Iterator[str]:
    yield section.title
    if section.about:
        yield textwrap.fill(section.about, _INDENT + _WIDTH)
    yield from ("", *map(_item, section.entries)) if section.entries else ()


def _item(entry: ExplainedTerm) -> str:
    said = f"[{entry.kind}] {entry.meaning}" if entry.kind else entry.meaning
    first, *rest = textwrap.wrap(said, _WIDTH) or [""]
    name = f"{entry.name:{_INDENT}}"
    head = [name + first] if len(entry.name) < _INDENT else [entry.name, " " * _INDENT + first]
    return textwrap.indent("\n".join([*head, *(" " * _INDENT + line for line in rest)]), "  ")


def _markdown_lines(section: Section) -> Iterator[str]:
    """A heading, which is code where it is a path of a file, and a table, without columns that are
    empty throughout."""
    path = " " not in section.title.replace(", ", "")
    yield f"### `{section.title}`" if path else f"### {section.title}"
    yield ""
    if section.about:
        yield from (textwrap.fill(section.about, 100), "")
    rows = [(f"`{entry.name}`", entry.kind, entry.meaning) for entry in section.entries]
    used = [place for place in range(3) if any(row[place] for row in rows)]
    if not rows:
        yield "No options."
        return
    for cells in (section.headings, ("---",) * 3, *rows):
        yield f"| {' | '.join(_cell(cells[place]) for place in used)} |"


def _cell(text: str) -> str:
    """Text that neither ends its cell nor is taken for HTML outside of code."""
    parts = text.replace("|", "\\|").split("`")
    parts[::2] = (part.replace("<", "&lt;") for part in parts[::2])
    return "`".join(parts)
