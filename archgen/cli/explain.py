"""`archgen explain`: the words of files and results, each from the place where it is defined.

The one idea: what is explained is data (`archgen.cli.topics`); here it becomes text for a terminal
or, with `--markdown`, the tables of the documentation, so that both say the same.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path

import click

from archgen.cli.options import FactorParam
from archgen.cli.topics import SECTIONS, ExplainedTerm, Section, laws, pictures, reference
from archgen.schema.tree import listed
from archgen.schema.variants import TWICE

# Every word of files and results by its full name, and what somebody who asks for one means.

_FIELD = "arch."
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


def meant(asked: str) -> list[Section]:
    """What explains `asked`: in each topic words of that full name, else those that end in it."""
    found = _closest(
        [w for w in _all_words() if any(_fits(asked, name) for name in _word_spellings(w))]
    )
    topics = {word.topic for word in found}
    found += [w for w in _all_words() if w.topic not in topics and w.name.endswith(f".{asked}")]
    return _merge_equal_sections([word.section for word in found])


def near(asked: str) -> list[str]:
    """Full names that are spelled much like `asked`, or end in something that is."""
    names = list(dict.fromkeys(word.name for word in _all_words()))
    folded = asked.lower().removeprefix(_FIELD)
    found = difflib.get_close_matches(folded, names, n=_MOST, cutoff=0.75)
    last = folded.rpartition(".")[2]
    ends = {name.rpartition(".")[2] for name in names}
    for end in difflib.get_close_matches(last, ends, n=2, cutoff=0.75):
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
                    if topic == "stalls":
                        yield Word(f"stall_{name}", topic, alone)


def _word_spellings(word: Word) -> Iterator[str]:
    """How a word may be written: fields of machines also as columns of frames have them, what has
    two spellings in either."""
    yield from word.name.split(" / ") if word.topic == "words" else (word.name,)
    if word.topic == "architecture":
        yield _FIELD + word.name


def _fits(asked: str, name: str) -> bool:
    """Whether `asked` is `name`, in which `<word>` stands for one part and `<field>` for more;
    headings begin with capitals in places, and may be broken into lines."""
    spelled = re.escape(name).replace("<field>", ".+")
    one_line = " ".join(asked.split())
    return re.fullmatch(_HOLE.sub("[^.]+", spelled), one_line, re.IGNORECASE) is not None


def _closest(found: list[Word]) -> list[Word]:
    """Of each topic the words with most letters of their own: `stall_<cause>_cycles` rather than
    `stall_<cause>`."""
    letters = [(len(_HOLE.sub("", word.name)), word.topic) for word in found]
    most = {topic: max(n for n, other in letters if other == topic) for _, topic in letters}
    return [word for word, (n, topic) in zip(found, letters, strict=True) if n == most[topic]]


def _merge_equal_sections(sections: list[Section]) -> list[Section]:
    """Sections that say the same of a word as one, under the titles of all."""
    titles: dict[tuple[object, ...], list[str]] = {}
    for section in sections:
        titles.setdefault((section.about, section.headings, section.entries), []).append(
            section.title
        )
    return [
        replace(
            next(s for s in sections if (s.about, s.headings, s.entries) == key),
            title="; ".join(dict.fromkeys(named)),
        )
        for key, named in titles.items()
    ]


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
    type=FactorParam(),
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


def _item(entry: ExplainedTerm) -> str:
    said = f"[{entry.kind}] {entry.meaning}" if entry.kind else entry.meaning
    first, *rest = textwrap.wrap(said, _WIDTH) or [""]
    name = f"{entry.name:{_INDENT}}"
    head = [name + first] if len(entry.name) < _INDENT else [entry.name, " " * _INDENT + first]
    return textwrap.indent("\n".join([*head, *(" " * _INDENT + line for line in rest)]), "  ")


def _as_markdown(sections: Sequence[Section]) -> str:
    return "\n\n".join("\n".join(_markdown_table(section)) for section in sections)


def _markdown_table(section: Section) -> Iterator[str]:
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
    yield _markdown_row([section.headings[place] for place in used])
    yield _markdown_row(["---"] * len(used))
    for row in rows:
        yield _markdown_row([row[place] for place in used])


def _code(title: str) -> str:
    """A title that is a path of a file is set as code."""
    return f"`{title}`" if " " not in title.replace(", ", "") else title


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Text that neither ends its cell nor is taken for HTML."""
    return text.replace("|", "\\|") if text.startswith("`") else _outside_code(text)


def _outside_code(text: str) -> str:
    parts = text.replace("|", "\\|").split("`")
    parts[::2] = (part.replace("<", "&lt;") for part in parts[::2])
    return "`".join(parts)
