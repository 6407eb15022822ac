"""Every word of files and results by its full name, and what somebody who asks for one means.

The one idea: topics already say everything (`archgen.cli.topics`); here each entry gets the name
under which users meet it (`memories.local.size`, `stall_data`), so that a word can be looked up.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from archgen.cli.topics import SECTIONS, Section

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
    found = _closest([w for w in _words() if any(_fits(asked, name) for name in _names(w))])
    topics = {word.topic for word in found}
    found += [w for w in _words() if w.topic not in topics and w.name.endswith(f".{asked}")]
    return _together([word.section for word in found])


def near(asked: str) -> list[str]:
    """Full names that are spelled much like `asked`, or end in something that is."""
    names = list(dict.fromkeys(word.name for word in _words()))
    folded = asked.lower().removeprefix(_FIELD)
    found = difflib.get_close_matches(folded, names, n=_MOST, cutoff=0.75)
    last = folded.rpartition(".")[2]
    ends = {name.rpartition(".")[2] for name in names}
    for end in difflib.get_close_matches(last, ends, n=2, cutoff=0.75):
        found += [name for name in names if name.rpartition(".")[2] == end]
    return list(dict.fromkeys(found))[:_MOST]


@cache
def _words() -> tuple[Word, ...]:
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


def _names(word: Word) -> Iterator[str]:
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


def _together(sections: list[Section]) -> list[Section]:
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
