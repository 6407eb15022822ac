"""Figures in sentences: which are found, what a line must say, and how near is near enough."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from figures import WrongFigure, figure_of, stretches, tie_of
from hypothesis import given
from hypothesis import strategies as st
from sources import Page, Results, figures_of, names, values

PAGE = """# A page

Half of `64 KiB` is enough: it costs 6 % more, [as here](there-12.md), on machine-3, on 2026-11-23.

<!-- figures
Half: what was asked
6 % = 0.0649
-->

| a | part |
|---|--:|
| 1,024 B | 7 % |

## Another section of 3

Twice the speed, of fp16.
"""


def mistakes(text: str) -> list[str]:
    return [each for stretch in stretches(text) for each in stretch.mistakes()]


def test_a_figure_without_a_line_is_a_mistake_and_names_of_things_are_none() -> None:
    assert mistakes(PAGE) == [
        "below line 14: no line says where 'Twice' is from: Twice the speed, of fp16."
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("five = 5", "line 4: 'five' is not in the sentences before the comment"),
        ("2 = 2", "line 4: '2' stands 2 times in the sentences before the comment"),
        ("2 of 2 cores = 2", "line 4: '2 of 2 cores' has 2 figures, not one or a range"),
        ("cores = 2", "line 4: 'cores' has 0 figures, not one or a range"),
        ("2 of: an example", "below line 1: no line says where '2' is from: 2 of 2 cores."),
    ],
)
def test_what_is_wrong_with_a_line(lines: str, said: str) -> None:
    found = mistakes(f"2 of 2 cores.\n\n<!-- figures\n{lines}\n-->\n")
    assert said in found


def test_one_line_may_cover_an_example_from_end_to_end() -> None:
    said = "<!-- figures\nA kernel of 7 ... 49: an example\n-->\n"
    assert mistakes(f"A kernel of 7 by 7 has 49.\n\n{said}") == []


def test_a_line_without_a_sign_cannot_be_read() -> None:
    with pytest.raises(WrongFigure, match="line 7: 'six tenths' is not: words, then"):
        tie_of("six tenths", 7)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("6 % more", [0.0649]),
        ("1.9 times", [1.94]),
        ("400 images", [384]),
        ("18 624 cycles", [18624]),
        ("some 20,000 machines", [20400]),
        ("a third of the time", [0.3218]),
        ("six tenths", [0.6128]),
        ("three quarters", [0.7]),
        ("twenty times as fast", [20]),
        ("Twice the speed", [1.9]),
        ("halved", [0.5]),
        ("four machines", [4]),
        ("1.6 to 2 times", [1.5602, 1.7, 1.98]),
        ("3 to 6 %", [0.031, 0.06]),
        ("one to four hundredths", [0.012, 0.037]),
    ],
)
def test_what_is_near_enough(said: str, found: list[float]) -> None:
    assert figure_of(said).is_of(found)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("a hundredth", [0.072]),
        ("6 %", [0.066]),
        ("1.9 times", [1.84]),
        ("400 images", [370]),
        ("a third", [0.4]),
        ("Twice", [1.6]),
        ("four machines", [5]),
        ("1.6 to 2 times", [1.7, 2.0]),
        ("1.6 to 2 times", [1.6, 2.0, 2.8]),
    ],
)
def test_what_is_not(said: str, found: list[float]) -> None:
    assert not figure_of(said).is_of(found)


@given(st.floats(0.001, 1e6), st.integers(0, 4))
def test_whatever_is_rounded_as_it_is_written_is_right(value: float, places: int) -> None:
    assert figure_of(f"{value:.{places}f} ms").is_of([value])
    assert not figure_of(f"{value:.{places}f} ms").is_of([1.2 * value + 2 * 10**-places])


def test_more_and_less_are_asked_of_every_value() -> None:
    tie_of("more than a third < 0.352", 1).check([0.352, 0.4])
    with pytest.raises(WrongFigure, match="'below 10 ms' > x, which is 8 to 12"):
        tie_of("below 10 ms > x", 1).check([8, 12])


def test_expressions_read_results_lines_tables_and_code(tmp_path: Path) -> None:
    known = names(tmp_path, PAGE, ["edge   6.085  12 %\nother 3"], {"mine": 5})
    assert values("line('edge')[1]", known) == [0.12]
    assert values("table('a')['a']", known) == [1024]
    assert values("mine * code('figures:NEAR_WORD')", known) == [0.75]
    frame = pd.DataFrame({"arch": ["a", "b"], "latency_ms": [1.0, 2.0]})
    assert Results(frame).latency_ms == [1.0, 2.0]
    assert Results(frame)["b"].latency_ms == 2.0


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("line('e')", "2 printed lines hold 'e'"),
        ("table('b')", "0 tables have the columns b"),
        ("nobody", "NameError"),
        ("float('nan')", "is no figure"),
        ("[]", "is no figure"),
        ("results('nowhere').latency_ms", "holds no study"),
    ],
)
def test_an_expression_that_is_not_one_thing_is_refused(
    expression: str, said: str, tmp_path: Path
) -> None:
    known = names(tmp_path, PAGE, ["edge 6\nother 3"], {})
    with pytest.raises(WrongFigure, match=said):
        values(expression, known)


def test_figures_of_lines() -> None:
    assert figures_of("7%  1,351,125 -20 % 1e3") == [0.07, 1351125, -0.2, 1000]
    assert Page(PAGE).table("part")["part"].tolist() == [0.07]
