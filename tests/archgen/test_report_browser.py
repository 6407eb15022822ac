"""The report in a real browser: it loads alone, sorts, filters, fits any width, and can be read.

Skipped where there is no Chromium; `python tests/archgen/browser.py FILE FOLDER` takes pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browser, chromium
from role_nets import conv_net

from archgen.report import write_report
from archgen.studies.sweep import study

FOUND = chromium()
pytestmark = pytest.mark.skipif(FOUND is None, reason="there is no Chromium")
WIDTHS = (380, 768, 1280, 1600)
CONTRAST = 4.5
"""Least contrast of text, by WCAG 2.1 level AA."""
UNREADABLE = """
(() => {
  const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = parse(getComputedStyle(each).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const seen = new Set();
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest("svg") || !element.checkVisibility()) continue;
    if (![...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const name = `${element.tagName}.${element.className}`;
    if (contrast < LEAST) seen.add(`${name}: ${contrast.toFixed(2)}`);
  }
  return [...seen];
})()
""".replace("LEAST", str(CONTRAST))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a study of two machines in two ways."""
    folder = tmp_path_factory.mktemp("browser")
    net = conv_net(folder / "net.onnx")
    made = study(["cocco-simba-1c", "ethos-u65-like"], [net], fusion=["none", "optimal"])
    assert made.frame["status"].eq("ok").all(), made.frame["reason"].tolist()
    return write_report(made, folder / "report.html")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    assert FOUND is not None
    with browser(FOUND) as opened:
        yield opened


def test_it_loads_alone_and_without_complaint(page: Page, file: Path) -> None:
    page.problems.clear()
    page.requests.clear()
    page.open(file)
    assert page.run("document.title").endswith("architecture review")
    assert page.problems == []
    assert page.requests == [file.resolve().as_uri()]


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(page: Page, file: Path, width: int) -> None:
    page.open(file, width)
    page.run("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert page.run("innerWidth") == width
    assert page.run("document.documentElement.scrollWidth") <= width
    outside = """[...document.querySelectorAll("main > *, .card, .sheet, figure, pre, .scroll")]
        .filter((part) => part.getBoundingClientRect().right > innerWidth + 1).length"""
    assert page.run(outside) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(page: Page, file: Path, scheme: str) -> None:
    page.open(file, scheme=scheme)
    page.run("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert page.run(UNREADABLE) == []


def column(page: Page, table: str, name: str) -> list[str]:
    """The shown cells of a column, from top to bottom."""
    found: list[str] = page.run(
        f"""(() => {{
          const table = document.querySelector("#{table} table");
          const heads = [...table.tHead.rows[0].cells];
          const place = heads.findIndex((head) => head.dataset.name === "{name}");
          return [...table.tBodies[0].rows].filter((row) => !row.hidden)
            .map((row) => row.cells[place].dataset.v ?? row.cells[place].textContent);
        }})()"""
    )
    return found


def head(table: str, name: str) -> str:
    return f"""document.querySelector('#{table} th[data-name="{name}"]')"""


def test_a_click_sorts_and_another_turns_the_order(page: Page, file: Path) -> None:
    page.open(file)
    before = column(page, "points", "latency")
    for order, largest_first in (("descending", True), ("ascending", False)):
        page.run(f"{head('points', 'latency')}.querySelector('button').click()")
        assert page.run(f"{head('points', 'latency')}.ariaSort") == order
        numbers = [float(value) for value in column(page, "points", "latency")]
        assert numbers == sorted(numbers, reverse=largest_first)
    page.run(f"{head('points', 'machine')}.querySelector('button').click()")
    assert page.run(f"{head('points', 'latency')}.ariaSort") is None
    names = column(page, "points", "machine")
    assert names == sorted(names)
    assert sorted(column(page, "points", "latency")) == sorted(before)


def typed(page: Page, table: str, text: str) -> Any:
    """What the page says after `text` is typed into the filter of a table."""
    return page.run(
        f"""(() => {{
          const input = document.querySelector("#{table} input");
          input.value = {text!r};
          input.dispatchEvent(new Event("input"));
          return document.querySelector("#{table} output").textContent;
        }})()"""
    )


def test_filters_look_for_words_and_compare(page: Page, file: Path) -> None:
    page.open(file)
    assert typed(page, "points", "cocco OPTIMAL") == "1 of 4 rows"
    assert column(page, "points", "machine") == ["cocco-simba-1c"]
    latencies = [
        float(value) for value in (typed(page, "points", ""), column(page, "points", "latency"))[1]
    ]
    bound = sorted(latencies)[1]
    assert typed(page, "points", f"latency<={bound}") == "2 of 4 rows"
    assert typed(page, "points", f"latency<={bound} ethos") in ("0 of 4 rows", "1 of 4 rows")
    assert typed(page, "points", "of_roofline<100%") == "4 rows"
    assert typed(page, "points", "nothing-like-it") == "0 of 4 rows"


def test_the_theme_is_chosen_by_a_button(page: Page, file: Path) -> None:
    page.open(file, scheme="light")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.run(colour)
    for said, dark in (("light", False), ("dark", True), ("as the system", False)):
        page.run("document.getElementById('theme').click()")
        assert said in page.run("document.getElementById('theme').textContent")
        assert (page.run(colour) != light) == dark


def test_a_link_opens_what_it_leads_to(page: Page, file: Path) -> None:
    page.open(file)
    closed = "[...document.querySelectorAll('details.point')].find((part) => !part.open)?.id"
    name = page.run(closed)
    assert name
    page.run(f"""document.querySelector('#points a[href="#{name}"]').click()""")
    page.run("new Promise((done) => setTimeout(done, 100))")
    assert page.run(f"document.getElementById('{name}').open")
    assert 0 <= page.run(f"document.getElementById('{name}').getBoundingClientRect().top") < 900


def test_print_is_light_and_whole(page: Page, file: Path) -> None:
    page.open(file, scheme="dark")
    page.media("print", "dark")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert (
        page.run("getComputedStyle(document.querySelector('.sheet .scroll')).maxHeight") == "none"
    )
