"""Names of roofs: the first and the last, and as many between as can be read."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from archgen.plots.roofline import Roofs, name_roofs

SPAN = (5.0, 500.0)
PEAK = 1000.0


def named(slopes: Sequence[float]) -> dict[str, Annotation]:
    """The names of slopes in a picture of 7.4 x 5.2 inches, log-log."""
    figure = Figure(figsize=(7.4, 5.2), dpi=100)
    panel = figure.subplots()
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlim(*SPAN)
    panel.set_ylim(SPAN[0] * min(slopes) / 2, 2 * PEAK)
    name_roofs(figure, [(panel, Roofs([(PEAK, "1,000 int8")], slopes, SPAN))])
    texts = [text for text in panel.texts if isinstance(text, Annotation)]
    return {text.get_text(): text for text in texts if text.get_text().endswith("GB/s")}


def test_few_bandwidths_all_have_names() -> None:
    found = named([4, 8, 16, 32, 64])
    assert list(found) == ["4 GB/s", "8 GB/s", "16 GB/s", "32 GB/s", "64 GB/s"]
    assert [text.get_verticalalignment() for text in found.values()] == ["top", *4 * ["bottom"]]


def test_of_twenty_the_ends_have_and_those_with_room_below_the_next() -> None:
    """Steps of 3 GB/s are factors that fall: 7/4, 10/7, 13/10, ..., 61/58."""
    found = [float(name.split()[0]) for name in named([4 + 3 * n for n in range(20)])]
    assert found[-1] == 61
    assert found[:-1] == [4 + 3 * n for n in range(len(found) - 1)], "the lowest ones, in order"
    assert 3 <= len(found) <= 6


def test_where_nothing_has_room_the_lowest_has_its_name_below() -> None:
    found = named([4 * 1.1**n for n in range(20)])
    assert [text.get_verticalalignment() for text in found.values()] == ["top", "bottom"]


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_are_named_whatever_lies_between(count: int) -> None:
    assert len(named([10, 10.5][:count])) == count


def test_a_name_rises_with_its_line() -> None:
    (text,) = (named([10])["10 GB/s"],)
    figure, panel = text.figure, text.axes
    assert figure is not None and panel is not None
    (a, b), (c, d) = panel.transData.transform([(10, 100), (100, 1000)])
    assert text.get_rotation() == pytest.approx(math.degrees(math.atan2(d - b, c - a)), abs=0.1)
