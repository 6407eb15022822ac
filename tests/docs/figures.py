"""Figures in sentences, each tied to what it is a figure of, and tested by value.

The one idea: whoever writes a figure says below the paragraph where it is from, in a comment that
readers do not see, one line for each:

    The array is busy for a quarter of 6.085 ms, and a faster DRAM makes it 1.9 times as quick.

    <!-- figures
    a quarter = results("first").matrix_busy
    6.085 ms = results("first").latency_ms
    1.9 times = results("sweep")["slow"].latency_ms / results("sweep")["fast"].latency_ms
    -->

Left of the sign stand words that occur once since the heading or the comment before, with one
figure or a range in them ("1.6 to 2 times"); right of it an expression of Python (`sources.py` has
its names), evaluated when all blocks of the page have run:

    =   this is the figure: what rounds to it as it is written; a whole number that ends in 0 within
        5 %, a word (a third, twice) within 15 %. Of a range every value lies inside, and the least
        and the largest value are its ends, all as near as that
    <   the figure is less than this     (more than a third < ...)
    >   the figure is more than this     (below 10 ms > ...)
    :   not tested, for the reason that follows: a task, an example, a run that takes long. Several
        figures may stand in the words, and " ... " for those between the first and the last

A figure is a number in digits, but for 0, 1, dates and what is part of a name, or a word for a part
or a multiple (half, two thirds, a hundredth, twice, twenty times). One without a line is a mistake,
so nothing passes because nobody looked. Tables, headings, blocks and `code` are no sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_HIDDEN = re.compile(
    r"(?P<figures><!-- figures\n.*?-->)"
    r"|^```.*?^```$|<!-- generated: .*?<!-- end -->|<!-- results -->.*?<!-- results end -->"
    r"|<!--.*?-->|^\|.*?$|`[^`]*`|(?<=\])\([^)\s]*\)|https?://\S+"
    r"|^ *\d+\. |\b\d{4}-\d\d-\d\d\b",
    re.M | re.S,
)
_END = re.compile(r"^#[^\n]*$|<!-- figures\n(?P<lines>.*?)-->", re.M | re.S)
_TIE = re.compile(r"(?P<said>.+?)(?: (?P<sign>[=<>])|(?P<given>:)) (?P<source>\S.*)")

_PARTS = {
    "half": 2, "halves": 2, "third": 3, "quarter": 4, "fifth": 5, "sixth": 6, "seventh": 7,
    "eighth": 8, "ninth": 9, "tenth": 10, "hundredth": 100, "thousandth": 1000,
}  # fmt: skip
_COUNTS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "twenty": 20, "thirty": 30,
    "thirty-two": 32, "forty": 40, "fifty": 50, "hundred": 100,
}  # fmt: skip
_MULTIPLES = {"doubled": 2, "doubles": 2, "halved": 0.5, "twice": 2, "thrice": 3}
_COUNT = "|".join(sorted(_COUNTS, key=len, reverse=True))
_FIGURE = re.compile(
    r"(?<![\w.\-/*^])(?P<digits>\d{1,3}(?:[ ,]\d{3})+(?!\d)|\d+(?:\.\d+)?)(?!\w|-[a-z]|\.\d)"
    r"(?P<percent> ?%)?"
    rf"|\b(?:(?:(?P<low>{_COUNT}) to )?(?P<count>{_COUNT}) )?(?P<part>{'|'.join(_PARTS)})s?\b"
    rf"|\b(?P<times>{_COUNT})(?= times\b)|\b(?P<multiple>{'|'.join(_MULTIPLES)})\b",
    re.I,
)
_WORD = re.compile(rf"\b({_COUNT})\b", re.I)
_BARE = ("0", "1")
"""No figures beside others: an exit code, a batch, an effort."""
NEAR_WORD = 0.15
"""How far off, as a fraction, what a word says may be."""
NEAR_ROUND = 0.05
"""The same of a whole number that ends in 0."""


class WrongFigure(ValueError):
    """A figure, or a line of a comment, that is not as it should be."""


@dataclass(frozen=True)
class Figure:
    """What words say: a value, or the two ends of a range, and how far off each may be."""

    low: float
    high: float
    off_low: float
    off_high: float

    def is_of(self, found: Sequence[float]) -> bool:
        """Whether it is the figure, or the range, of what was `found`."""
        near_low = abs(min(found) - self.low) <= self.off_low
        return near_low and abs(max(found) - self.high) <= self.off_high


@dataclass(frozen=True)
class Tie:
    """One line of a comment."""

    line: int
    said: str
    sign: str
    source: str

    @property
    def tested(self) -> bool:
        """Whether there is an expression to test it by."""
        return self.sign != ":"

    def check(self, found: Sequence[float]) -> None:
        """Raise WrongFigure where what is said is not what was found."""
        figure = figure_of(self.said)
        right = {
            "=": figure.is_of(found),
            "<": figure.high < min(found),
            ">": figure.low > max(found),
        }
        if not right[self.sign]:
            ends = " to ".join(f"{value:.4g}" for value in sorted({min(found), max(found)}))
            raise WrongFigure(f"{self.said!r} {self.sign} {self.source}, which is {ends}")

    def places(self, words: str) -> list[range]:
        """Where `said` stands in these words."""
        pattern = re.escape(self.said)
        if not self.tested:
            pattern = pattern.replace(r"\ \.\.\.\ ", ".*?")
        return [range(*found.span()) for found in re.finditer(pattern, words)]


@dataclass(frozen=True)
class Stretch:
    """Sentences up to a heading or a comment, without what is not a sentence, and their ties."""

    line: int
    words: str
    ties: tuple[Tie, ...]

    def mistakes(self) -> Iterator[str]:
        """Figures without a line, and lines without their words."""
        tied = set[int]()
        for tie in self.ties:
            places = tie.places(self.words)
            if len(places) != 1:
                times = f"stands {len(places)} times" if places else "is not"
                yield f"line {tie.line}: {tie.said!r} {times} in the sentences before the comment"
                continue
            tied.update(places[0])
            try:
                if tie.tested:
                    figure_of(tie.said)
            except WrongFigure as wrong:
                yield f"line {tie.line}: {wrong}"
        for found in _FIGURE.finditer(self.words):
            if found[0] not in _BARE and found.start() not in tied:
                near = self.words[max(0, found.start() - 30) : found.end() + 20].strip()
                yield f"below line {self.line}: no line says where {found[0]!r} is from: {near}"


def stretches(text: str) -> Iterator[Stretch]:
    """The sentences of a page in Markdown."""
    text = _HIDDEN.sub(lambda found: found["figures"] or _blank(found[0]), text) + "\n# end\n"
    start = 0
    for end in _END.finditer(text):
        first = text.count("\n", 0, end.start()) + 2
        lines = enumerate((end["lines"] or "").splitlines(), first)
        ties = tuple(tie_of(line, number) for number, line in lines if line.strip())
        words = text[start : end.start()]
        yield Stretch(text.count("\n", 0, start) + 1, " ".join(words.split()), ties)
        start = end.end()


def _blank(hidden: str) -> str:
    return " _ " + "\n" * hidden.count("\n")


def tie_of(text: str, line: int) -> Tie:
    """One line of a comment; raises WrongFigure where it cannot be read."""
    found = _TIE.fullmatch(text.strip())
    if found is None:
        raise WrongFigure(f"line {line}: {text!r} is not: words, then = < > or :, then a source")
    return Tie(line, found["said"], found["sign"] or found["given"], found["source"])


def figure_of(said: str) -> Figure:
    """The one figure, or range, of these words."""
    found = list(_FIGURE.finditer(said)) or list(_WORD.finditer(said))[:1]
    if len(found) == 2 and said[found[0].end() : found[1].start()].strip() in ("to", "and"):
        low, high = (_value(each) for each in found)
        scale = 100 if found[1]["percent"] and not found[0]["percent"] else 1
        return Figure(low.low / scale, high.high, low.off_low / scale, high.off_high)
    found = [each for each in found if each[0] not in _BARE] or found
    if len(found) != 1:
        raise WrongFigure(f"{said!r} has {len(found)} figures, not one or a range")
    return _value(found[0])


def _value(found: re.Match[str]) -> Figure:
    if found.re is _WORD:
        return _figure(_COUNTS[found[0].lower()], 0)
    if found["digits"]:
        digits = re.sub("[ ,]", "", found["digits"])
        places = len(digits.partition(".")[2])
        scale = 100 if found["percent"] else 1
        value, off = float(digits), 0.5001 * 10**-places
        if digits.endswith("0") and not places:
            off = max(off, NEAR_ROUND * value)
        return _figure(value / scale, off / scale)
    if found["part"]:
        part = _PARTS[found["part"].lower()]
        high = _COUNTS[(found["count"] or "a").lower()] / part
        low = _COUNTS[found["low"].lower()] / part if found["low"] else high
        return Figure(low, high, NEAR_WORD * high, NEAR_WORD * high)
    value = (_COUNTS | _MULTIPLES)[(found["times"] or found["multiple"]).lower()]
    return _figure(value, NEAR_WORD * value)


def _figure(value: float, off: float) -> Figure:
    return Figure(value, value, off, off)
