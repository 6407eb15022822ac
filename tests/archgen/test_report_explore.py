"""The plots of the report in a real browser, by use: filter, brush, choose, hover, click, print.

A sweep of 3 sizes x 4 bandwidths for two networks, made by a law (`many_points`): 24 points. Still
drawings take seconds and are looked at in `test_report_html` and `test_report_browser`: here only
the page of a thousand points has them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page, browser, chromium
from many_points import BANDWIDTH, NETWORKS, sweep
from role_nets import conv_net

from archgen.report import page as pages
from archgen.report import report_html, write_report
from archgen.report.figures import Explorer, explorer
from archgen.report.points import point_views
from archgen.report.ranking import machine_content, measured, rank
from archgen.report.sheet import Cell, ComputedColumn, Heading, sheet
from archgen.report.tables import points_sheet, swept
from archgen.studies.results import Study
from archgen.studies.sweep import study

FOUND = chromium()
in_browser = pytest.mark.skipif(FOUND is None, reason="there is no Chromium")
MOST = 10_000_000
"""Bytes of a page with 1,000 points."""
LOOKS = "[...document.querySelectorAll('#plot-points .scatterlayer .point')]"
ROWS = "[...document.querySelectorAll('#points tbody tr')].filter((row) => !row.hidden)"
STATE = f"""JSON.stringify([location.href, window.printedWidth, {ROWS}.length,
  ...[...document.querySelectorAll("#plots select, #points input")].map((each) => each.value)])"""
"""What a reader can change of the page, as text."""


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("explore")
    net = conv_net(folder / "net.onnx")
    return study("cocco-simba-1c", net, out=folder / "out", plots=False, verify=False)


@pytest.fixture(scope="module")
def file(one_run: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return undrawn(sweep(one_run, 3, 4), tmp_path_factory.mktemp("explore-page") / "report.html")


def undrawn(made: Study, target: Path) -> Path:
    """The report of `made`, with no drawing but the plots that move."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Study, "overviews", {})
        patched.setattr(pages, "details", lambda point, outcome: [])
        return write_report(made, target)


@pytest.fixture(scope="module")
def browsed() -> Iterator[Page]:
    assert FOUND is not None
    with browser(FOUND) as opened:
        yield opened


@pytest.fixture
def page(browsed: Page, file: Path) -> Page:
    """The page with its plots drawn, scrolled to them: loaded anew only where the test before
    has left a change, for drawing takes seconds."""
    browsed.media("screen", "light")
    if not browsed.run(f"window.atFirst === {STATE}"):
        browsed.problems.clear()
        browsed.requests.clear()
        browsed.open(file, 1280, "light", 1400)
        until(browsed, "document.querySelector('#plot-lines .y-axis')")
        browsed.run(f"window.atFirst = {STATE}")
    browsed.run("document.getElementById('plot-points').scrollIntoView()")
    return browsed


def until(page: Page, script: str) -> None:
    """Wait for what `script` looks for."""
    end = time.monotonic() + 60
    while not page.run(f"!!({script})"):
        assert time.monotonic() < end, script
        time.sleep(0.05)


def shown(page: Page, name: str) -> list[str]:
    """What the rows that are left show in a column."""
    place = f"""[...document.querySelectorAll('#points th')]
        .findIndex((head) => head.dataset.name === {name!r})"""
    found: list[str] = page.run(f"{ROWS}.map((row) => row.cells[{place}].textContent)")
    return found


def typed(page: Page, text: str) -> tuple[str, str]:
    """What stands beside the filter after `text` is typed into it: rows, and what is wrong."""
    rows, wrong = page.run(
        f"""(() => {{
          const tools = document.querySelector('#points .tools');
          tools.querySelector('input').value = {json.dumps(text)};
          tools.querySelector('input').dispatchEvent(new Event('input'));
          return [tools.querySelector('output'), tools.querySelector('.mistake')]
            .map((part) => part.textContent);
        }})()"""
    )
    return rows, wrong


def drawn(page: Page) -> int:
    """Points of the plot, faded or not."""
    found: int = page.run(f"{LOOKS}.length")
    return found


def bright(page: Page) -> int:
    found: int = page.run(f"{LOOKS}.filter((mark) => mark.style.opacity > 0.5).length")
    return found


def choose(page: Page, name: str, value: str) -> None:
    page.run(
        f"""(() => {{
          const select = document.querySelector('#plots select[name={json.dumps(name)}]');
          select.value = {json.dumps(value)};
          select.dispatchEvent(new Event('change', {{ bubbles: true }}));
        }})()"""
    )


def box(page: Page, script: str) -> dict[str, float]:
    """Where an element lies in the window."""
    found: dict[str, float] = page.run(f"{script}.getBoundingClientRect().toJSON()")
    return found


def middle(page: Page, script: str) -> tuple[float, float]:
    found = box(page, script)
    return found["x"] + found["width"] / 2, found["y"] + found["height"] / 2


@in_browser
def test_plots_load_alone_and_offer_to_send_nothing(page: Page, file: Path) -> None:
    assert page.problems == []
    held = ("blob:", "data:")  # in the page itself
    asked = [name for name in page.requests if not name.startswith(held)]
    assert asked == [file.resolve().as_uri()]
    assert drawn(page) == len(shown(page, "machine")) == 24
    offered: list[str] = page.run(
        "[...document.querySelectorAll('.modebar-btn')].map((button) => button.ariaLabel)"
    )
    assert "Lasso Select" in offered
    assert not [name for name in offered if "hare" in name or "loud" in name]
    assert page.run("[...document.querySelectorAll('.plot a[href]')].length") == 0


@in_browser
def test_filters_narrow_plots_and_table_alike(page: Page) -> None:
    choose(page, "workload", NETWORKS[0])
    assert drawn(page) == len(shown(page, "machine")) == 12
    assert "12 of 24 points" in page.run("document.getElementById('narrowing').textContent")
    typed(page, "local.size<=128")
    assert set(shown(page, "local.size")) == {"64 KiB", "128 KiB"}
    assert drawn(page) == 8
    page.run("document.querySelector('#narrowing button').click()")
    assert drawn(page) == len(shown(page, "machine")) == 24


@in_browser
def test_a_box_keeps_its_points_everywhere(page: Page) -> None:
    choose(page, "x", "local.size")
    place = box(page, "document.querySelector('#plot-points .nsewdrag')")
    right = place["x"] + place["width"] * 0.75  # 64, 128 and 192 KiB are at equal distances
    top, bottom = place["y"] + 2, place["y"] + place["height"] - 2
    page.drag((place["x"] + 2, top), (right - 50, bottom - 50), (right, bottom))
    until(page, f"{ROWS}.length < 24")
    assert set(shown(page, "local.size")) == {"64 KiB", "128 KiB"}
    assert len(shown(page, "machine")) == 16
    assert (drawn(page), bright(page)) == (24, 16)
    lines = "document.getElementById('plot-lines').data[0].dimensions[0].values.length"
    assert page.run(lines) == 16


@in_browser
def test_the_mouse_over_a_point_tells_it_and_a_click_leads_to_its_card(page: Page) -> None:
    place = middle(page, f"{LOOKS}[7]")
    page.point_at(*place)
    until(page, "document.querySelector('#plot-points .hovertext')")
    said = page.run("document.querySelector('#plot-points .hovertext').textContent")
    for part in ("cocco-simba-1c-size", NETWORKS[0], "local.size: ", "Latency: ", "Area: "):
        assert part in said
    page.drag(place)
    until(page, "location.hash")
    card = "document.getElementById(location.hash.slice(1))"
    name = page.run(f"{card}.querySelector('h3, summary').textContent")
    assert said.startswith(name.split(":")[0].removesuffix(".yaml"))
    assert 0 <= box(page, card)["y"] < 1400


def test_a_thousand_points_are_a_page_of_ten_megabytes(one_run: Study) -> None:
    made = sweep(one_run, 25, 20)
    assert len(made.outcomes) == 1000
    assert len(report_html(made).encode()) < MOST


def test_what_a_change_brings_is_measured_where_the_study_has_it(one_run: Study) -> None:
    made = sweep(one_run, 1, 2)
    ranking = rank(point_views(made), made.archs)
    known = {machine_content(each.arch): (each,) for each in ranking.ranked}
    slow = ranking.ranked[-1]
    found = measured({BANDWIDTH: "8 GB/s"}, slow, known)
    assert found is not None
    # 64 KiB: 9 ms become 5, of the other network 17 become 9: the geometric mean of both.
    assert found.gain == pytest.approx(1 - (5 / 9 * 9 / 17) ** 0.5)
    assert found.machine == made.archs[1].name
    assert measured({BANDWIDTH: "16 GB/s"}, slow, known) is None
    assert measured({}, slow, known) is None


def plots_of(made: Study) -> Explorer | None:
    points = point_views(made)
    table = points_sheet(points, rank(points, made.archs), lambda point: "")
    return explorer(table, [heading for heading, _ in swept(points)])


def test_few_points_need_no_plots(one_run: Study) -> None:
    assert plots_of(one_run) is None
    assert plots_of(sweep(one_run, 1, 2)) is None
    assert plots_of(sweep(one_run, 1, 3)) is not None


def test_names_of_columns_are_no_markup() -> None:
    hostile = "</script><b>"
    columns = [
        ComputedColumn(Heading("Latency"), lambda value: Cell("1", f"{value}")),
        ComputedColumn(Heading(hostile), lambda value: Cell("2", f"{value}")),
    ]
    found = explorer(sheet("points", "", columns, range(1, 9)), [Heading(hostile)])
    assert found is not None
    assert "<" not in found.columns
    assert json.loads(found.columns)["fields"] == [hostile]
