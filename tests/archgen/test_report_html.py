"""The report of a study: what the page says, that nothing in a name can break it, and its bounds.

One small study of real runs, with hostile names and a point that is refused, serves all tests of
the page. Bounds of levers are tried: parts of a machine are doubled under the same program.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml
from click.testing import CliRunner
from role_nets import conv_net

from archgen.api import compile_model, load_model
from archgen.cli.results import report
from archgen.energy import costs_of
from archgen.energy.model import energy_of
from archgen.outcomes.frame import records, results_frame
from archgen.outcomes.points import Outcome
from archgen.outcomes.rows import energy_row, layer_rows, metrics_row
from archgen.outcomes.timeline import tables
from archgen.report import card_html, report_html
from archgen.report.account import Account, account
from archgen.report.lever_rules import rules_for
from archgen.report.levers import LEAST
from archgen.report.points import PointView, point_views
from archgen.report.ranking import rank
from archgen.report.sheet import percent
from archgen.report.tables import waterfall_sheet
from archgen.scheduling import DEFAULT
from archgen.schema import load_arch, shipped_names
from archgen.schema.rewritten import changed, fields_of, scaled
from archgen.studies.results import Study, open_study
from archgen.studies.sweep import study
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate, traced
from simmodel.metrics import measure
from simmodel.program.program import Program

HOSTILE = '<script>alert("x")</script>&\'</details>'
MACHINES = ("cocco-simba-1c", "ethos-u65-like", "tpu-v3-like")
VOID = {"meta", "input", "br", "link", "img", "hr"}
SVG_LINK = re.compile(r"url\(#([^)]+)\)")


def hostile_net(path: Path) -> Path:
    """The network of `conv_net` with names that are markup."""
    model = onnx.load(conv_net(path))
    for node in model.graph.node:
        node.name = f"{node.name}{HOSTILE}"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two machines that run a network in two ways, and one that refuses it."""
    place = tmp_path_factory.mktemp("report")
    model = hostile_net(place / "<b>net&.onnx")
    out = place / "out"
    study(MACHINES, [model], dtype="int8", fusion=["none", "optimal"], out=out, plots=False)
    return out


@pytest.fixture(scope="module")
def made(folder: Path) -> Study:
    found = open_study(folder)
    about = replace(
        found.about, name=f"a {HOSTILE}", description=HOSTILE, command=HOSTILE, source=HOSTILE
    )
    return replace(found, about=about)


@pytest.fixture(scope="module")
def text(made: Study) -> str:
    return report_html(made)


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Everything written within."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, tag: str, **wanted: str) -> list[Element]:
        """Elements below with this tag and these attributes."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                same = all(child.attributes.get(k) == v for k, v in wanted.items())
                found += ([child] if child.tag == tag and same else []) + child.all(tag, **wanted)
        return found


class Tree(HTMLParser):
    """A page as a tree; a tag that is closed wrongly is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("", {})
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert len(self._open) == 1, [element.tag for element in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        assert len(element.attributes) == len(attrs), f"{tag}: an attribute twice"
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, {k: v or "" for k, v in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


@pytest.fixture(scope="module")
def page(text: str) -> Element:
    return Tree(text).root


def everything(element: Element) -> list[Element]:
    children = [child for child in element.children if isinstance(child, Element)]
    return [*children, *(below for child in children for below in everything(child))]


def cells(page: Element, name: str) -> list[dict[str, str]]:
    """The rows of a table, by the names of its columns."""
    (sheet,) = page.all("div", id=name)
    names = [head.attributes["data-name"] for head in sheet.all("th")]
    assert len(set(names)) == len(names)
    rows = [row.all("td") for row in sheet.all("tbody")[0].all("tr")]
    assert all(len(row) == len(names) for row in rows)
    return [dict(zip(names, (cell.text for cell in row), strict=True)) for row in rows]


def test_ids_are_unique_and_links_lead_somewhere(page: Element) -> None:
    elements = everything(page)
    ids = Counter(e.attributes["id"] for e in elements if "id" in e.attributes)
    assert [name for name, count in ids.items() if count > 1] == []
    for element in elements:
        for name in ("href", "xlink:href", "aria-describedby", "clip-path", "style"):
            value = element.attributes.get(name, "")
            target = value[1:] if value.startswith("#") else None
            wanted = [target] if target else SVG_LINK.findall(value)
            wanted += [value] if name == "aria-describedby" and value else []
            assert all(each in ids for each in wanted), (element.tag, name, value)


def test_the_page_needs_nothing_else(text: str, page: Element) -> None:
    for element in everything(page):
        for name, value in element.attributes.items():
            if name in ("src", "href", "xlink:href", "data", "action"):
                assert value.startswith("#"), (element.tag, name, value)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert {element.tag for element in everything(page)}.isdisjoint({"img", "iframe", "link"})


def test_names_are_text_and_never_markup(text: str, page: Element) -> None:
    assert "<script>alert" not in text
    assert len(page.all("script")) == 2
    assert page.all("h1")[0].text == f"a {HOSTILE}"
    assert page.all("title")[0].text == f"a {HOSTILE}: architecture review"
    nodes = [row["node"] for row in cells(page, "point-2-table")]
    assert any("<script>" in node for node in nodes)
    assert any(HOSTILE in pre.text for pre in page.all("pre"))


def test_every_section_and_figure_is_there(page: Element) -> None:
    links = [link.attributes["href"][1:] for link in page.all("nav")[0].all("a")]
    assert links == [section.attributes["id"] for section in page.all("section")]
    assert {"summary", "ranking", "refused", "review", "costs", "details"} <= set(links)
    figures = {each.attributes["id"]: each for each in page.all("figure")}
    overview = ("latency", "roofline", "memory", "stalls", "energy", "area")
    assert {f"figure-{name}" for name in overview} <= set(figures)
    assert {f"point-2-{name}" for name in ("layers", "engines", "bandwidth")} <= set(figures)
    assert all(len(figure.all("svg")) == 1 for figure in figures.values())
    assert all(figure.all("svg")[0].attributes["aria-label"] for figure in figures.values())


def test_tables_have_the_numbers_of_the_frame(made: Study, page: Element) -> None:
    rows = records(made.frame)
    shown = cells(page, "points")
    assert [row["machine"] for row in shown] == [row["arch"] for row in rows]
    for row, cell in zip(rows, shown, strict=True):
        if row["status"] != "ok":
            assert (cell["status"], cell["latency"]) == ("not supported", "–")
            continue
        assert float(cell["latency"].replace(",", "")) == pytest.approx(row["latency_ms"], 1e-3)
        assert float(cell["energy"]) == pytest.approx(row["energy_mj"], 6e-3)
        assert cell["of_roofline"] == percent(row["efficiency"])
        assert cell["verified"] == "yes"
    machines = cells(page, "machines")
    assert [row["rank"] for row in machines] == ["1", "2", "–"]
    assert {row["speed"] for row in machines if row["machine"] == MACHINES[0]} == {"1.00×"}
    layers = cells(page, "point-2-table")
    own = made.outcomes[1]
    assert [row["macs"] for row in layers] == [f"{row['executed_macs']:,}" for row in own.layers]


def test_the_cycles_of_every_run_are_told_from_the_bound_on(made: Study) -> None:
    points = [point for point in point_views(made) if point.has_run]
    found = waterfall_sheet(points)
    names = [heading.name for heading in found.headings]
    assert len(found.rows) == len(points) > 1
    for row, point in zip(found.rows, points, strict=True):
        said = dict(zip(names, row, strict=True))
        assert float(said["least"].value) == point.get("bound_cycles")
        assert said["of_least"].share == pytest.approx(point.get("of_bound"))
        dram = sum(said[name].share for name in names if name.startswith("dram_"))
        engines = sum(said[n].share for n in names[7:] if not n.startswith("dram_"))
        assert (dram, engines) == (pytest.approx(1), pytest.approx(1))


def test_machines_come_back_from_the_appendix(made: Study, page: Element, tmp_path: Path) -> None:
    for arch in made.archs:
        details = [
            d for d in page.all("details") if d.all("summary")[0].text == f"{arch.name}.yaml"
        ]
        file = tmp_path / f"{arch.name}.yaml"
        file.write_text(details[0].all("code")[0].text, encoding="utf-8")
        assert load_arch(file) == arch


def test_wrong_results_are_left_out_of_comparisons(made: Study) -> None:
    outcomes = list(made.outcomes)
    fastest = min((o for o in outcomes if o.status == "ok"), key=lambda o: o.row["latency_ms"])  # type: ignore[arg-type, return-value]
    index = outcomes.index(fastest)
    outcomes[index] = replace(fastest, row=fastest.row | {"verified": False})
    points = point_views(replace(made, outcomes=tuple(outcomes)))
    best = [p for s in rank(points, made.archs).standings for p in s.best.values()]
    assert index not in [point.index for point in best]
    card = card_html(replace(made, outcomes=tuple(outcomes)))
    assert "WRONG outputs" in card


def measured(program: Program, arch: Arch) -> tuple[int, Account]:
    """Cycles of a run, and its account."""
    trace = traced(program, arch)
    costs = costs_of(arch)
    energy = energy_of(trace, program, arch, costs)
    point: dict[str, Any] = {"arch": arch.name, "model": "net", "batch": 1, "dtype": arch.types[0]}
    point |= {"family": arch.name} | DEFAULT.columns
    row = point | {"status": "ok"} | metrics_row(measure(trace, program, arch), program, arch)
    row |= energy_row(energy, costs.area)
    layers = [point | layer for layer in layer_rows(trace, program, energy.layers)]
    details = {"traffic": dict(trace.traffic)}
    outcome = Outcome("", "", row, layers, details, tables(trace, program, arch, point))
    view = PointView(0, records(results_frame([outcome]))[0], arch, "net", "")
    return trace.cycles, account(view, outcome)


@pytest.mark.parametrize("name", shipped_names())
def test_every_machine_is_spelled_as_a_file_may_be(name: str, tmp_path: Path) -> None:
    arch = load_arch(name)
    file = tmp_path / "machine.yaml"
    file.write_text(yaml.safe_dump(fields_of(arch)), encoding="utf-8")
    assert load_arch(file) == arch
    assert changed(arch, scaled(arch, "vector.lanes", 2)) is not None


@pytest.mark.parametrize("name", ["cocco-simba-4c", "ethos-u65-like", "nvdla-2048", "soma-edge"])
def test_no_change_saves_more_than_its_bound(name: str, tmp_path: Path) -> None:
    arch = load_arch(name)
    program = compile_model(load_model(str(conv_net(tmp_path / "net.onnx"))), arch)
    cycles, own = measured(program, arch)
    tried = 0
    for rule in rules_for(arch):
        gain, said = rule.judge(own)
        other = changed(arch, rule.on(arch))
        assert gain <= 1
        assert gain < LEAST or said
        if other is not None and rule.same(arch):
            tried += 1
            saved = 1 - simulate(program, other).cycles / cycles
            assert saved <= max(gain, 0) + LEAST, rule.title
    assert tried >= 6


def test_the_verb_writes_the_file(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "review.html"
    done = CliRunner().invoke(report, [str(folder), "-o", str(target)])
    assert done.exit_code == 0, done.output
    assert done.output == f"6 points; report in {target}\n"
    assert Tree(target.read_text(encoding="utf-8")).root.all("h1")[0].text == "Study"
    missing = CliRunner().invoke(report, [str(tmp_path)])
    assert missing.exit_code != 0
    assert "holds no study" in str(missing.exception)
