"""Dollars of a chip and of its inferences, from what a machine's file states."""

from __future__ import annotations

import csv
import importlib
import re
import sys
from pathlib import Path
from statistics import geometric_mean
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from host_only import HOST_ONLY, small_model

import archgen
from archgen.cli.explain import explain
from archgen.cli.machines import check
from archgen.cli.main import cli as main
from archgen.energy import costs_of
from archgen.energy.area import Area
from archgen.energy.costs import effects
from archgen.energy.price import PRICES, dies_per_wafer, price_of, price_row
from archgen.energy.ranges import at_node
from archgen.energy.sram import MissingSource, Sram, cacti_cost, sram_cost
from archgen.energy.table import SHIPPED, shipped_table
from archgen.exploration.plan import measure_column
from archgen.schema import load_arch, load_archs, shipped_names
from archgen.schema.rewritten import changed
from simmodel.arch.costs import EnergyTable
from simmodel.arch.record import Arch
from simmodel.arch_rules import area_parts, area_terms

PRICE = {"wafer": "9000 USD", "defects": "0.5 /cm2", "clustering": 4, "package": "2 USD",
         "dram": "4 USD/GiB", "electricity": "0.2 USD/kWh", "lifetime": "2 years"}  # fmt: skip


@pytest.mark.parametrize(
    ("area", "dies"),
    # Hennessy and Patterson, 5th edition, pages 30 and 31: dies of 1.5 cm and of 1.0 cm a side on
    # a wafer of 30 cm: 269.4 and 639.9 there, of which whole ones are meant.
    [(225.0, 269), (100.0, 640), (100_000.0, 0), (0.0, 0)],
)
def test_dies_on_a_wafer(area: float, dies: int) -> None:
    assert dies_per_wafer(300.0, area) == pytest.approx(dies, abs=1)


def test_a_chip_of_known_size_costs_its_share_of_the_wafer() -> None:
    arch = changed(load_arch("soma-edge"), {"price": PRICE})
    assert arch is not None
    found = price_of(arch, 100.0)
    assert found is not None
    # 0.5 defects on 1 cm2: (1 + 0.5 / 4) ** -4 = 0.6243; 640 dies, 9000 / (640 x 0.6243) = 22.53.
    assert found.good == pytest.approx(0.62430, abs=1e-5)
    assert found.chip == pytest.approx(9000 / (found.dies * 0.62430) + 2, rel=1e-4)
    assert found.system == pytest.approx(found.chip + 4 * 4)  # 4 GiB
    assert price_of(arch, 1e6) is None


def test_a_million_inferences_pay_for_the_machine_and_its_electricity() -> None:
    arch = changed(load_arch("soma-edge"), {"price": PRICE})
    assert arch is not None
    area = costs_of(arch).area
    row = price_row(arch, area, throughput=1000.0, joules=0.0036)
    # Two years are 63 115 200 s; a million samples take 1000 s of them, and 3600 J: 1 Wh.
    expected = row["system_usd"] * 1000 / 63_115_200 + 0.2 * 0.001
    assert row["usd_per_million"] == pytest.approx(expected)
    assert row["chip_low_usd"] < row["chip_usd"] < row["chip_high_usd"]
    assert row.keys() == PRICES
    assert "usd_per_million" not in price_row(arch, area, throughput=1000.0)
    free = changed(arch, {"price.electricity": 0})
    assert free is not None
    assert "usd_per_million" in price_row(free, area, throughput=1000.0)
    assert price_row(load_arch("soma-edge"), area) == {}


def test_a_study_has_the_columns(tmp_path: Path) -> None:
    file = tmp_path / "priced.yaml"
    file.write_text("extends: soma-edge\nname: priced\nprice: {wafer: 9 kUSD, yield: 0.9}\n")
    net, machines = small_model(tmp_path / "small.onnx"), [str(file), "soma-edge"]
    rows = archgen.study(machines, net, tools=HOST_ONLY, verify=False).frame.set_index("arch")
    assert rows.loc["priced", "die_yield"] == 0.9
    assert 0 < rows.loc["priced", "chip_usd"] == rows.loc["priced", "system_usd"]
    assert rows.loc["priced", "usd_per_million"] > 0
    assert rows.loc["soma-edge", ["die_yield", "chip_usd", "usd_per_million"]].isna().all()


def test_explain_area_says_the_price(tmp_path: Path) -> None:
    file = tmp_path / "priced.yaml"
    file.write_text("extends: soma-edge\nname: priced\nprice: {wafer: 9000, defects: 0.1 /cm2}\n")
    said = CliRunner().invoke(main, ["explain", "area", str(file)], catch_exceptions=False).output
    assert "a chip costs " in said
    assert "dies on a wafer" in said


@pytest.mark.parametrize("measure", sorted(PRICES))
def test_no_search_is_for_a_price_that_nobody_stated(measure: str) -> None:
    with pytest.raises(ValueError, match="soma-edge has no section price"):
        measure_column(measure, load_arch("soma-edge"))


# `archgen explain area`: sums with their fields, and what each field does alone.


def test_explain_area_names_fields() -> None:
    run = CliRunner().invoke
    text = run(explain, ["area", "gemmini-16"]).output
    first, second = text.splitlines()[:2]
    assert re.fullmatch(r"gemmini-16, 22 nm: .* mm2 \(.*\) without interface to DRAM", first)
    assert second.startswith("            with it: ") and second.endswith("port of the system's")
    own = run(explain, ["area", "tpu-v1"]).output.splitlines()[1]
    assert own.endswith("it is its own")
    assert "memories.local.{size, banks, bank_width" in text
    assert text.splitlines()[2] == (
        "at 1 GHz logic takes 5% more area, and operations 6% more energy, than up to 0.908 GHz"
    )
    assert "than up to" not in run(explain, ["area", "mcu-npu"]).output
    assert run(explain, ["columns", "gemmini-16"]).exit_code == 2


def test_sensitivity_says_what_each_field_does() -> None:
    arch = load_archs(["gemmini-16"])[0]
    found = {effect.field: effect for effect in effects(arch)}
    twice = found["memories.local.size"]
    assert twice.after == 2 * twice.before
    assert twice.mm2 > 0 and twice.events["local read"] > 0 and twice.leakage > 0
    assert found["memories.dram.bandwidth"].leakage == 0, "its interface is not in leakage"
    assert "memories.local.latency" not in found
    wide = {"COLUMNS": "200"}
    shown = CliRunner().invoke(explain, ["area", "gemmini-16", "--sensitivity"], env=wide).output
    sizes = {field: abs(effect.area) for field, effect in found.items()}
    fields = [word for line in shown.splitlines() for word in line.split()[:1] if word in sizes]
    assert [sizes[field] for field in fields] == sorted(sizes.values(), reverse=True)
    assert " 1 GHz " in shown and " 2 GHz " in shown and "256 KiB" in shown


# Areas that a file states: any term that is printed, any part, and terms of its own.

WHOLE = Path(__file__).with_name("whole_machine.yaml")
APART = {"other", "dram"}
"""Parts that are stated by fields of their own."""


def with_areas(arch: Arch, **areas: Any) -> Area:
    made = changed(arch, {"energy.area": areas})
    assert made is not None
    return costs_of(made).area


def test_the_names_that_may_be_stated_are_those_that_are_printed() -> None:
    for arch in [*load_archs(shipped_names()), load_arch(WHOLE)]:
        area = costs_of(arch).area
        shown = {f"{t.part} {t.what.replace(':', '')}" for t in area.terms if t.part != "other"}
        assert set(area_terms(arch)) == shown, arch.name
        assert set(area_parts(arch)) == area.parts.keys() - arch.memories.on_chip().keys() - APART


def test_a_stated_part_counts_once_for_each_core() -> None:
    arch = load_arch("cocco-simba-4c")
    usual, area = costs_of(arch).area, with_areas(arch, parts={"vector": "0.12 mm2"})
    assert area.parts["vector"].value == pytest.approx(4 * 0.12)
    assert area.parts["vector"].stated
    same = usual.parts.keys() - {"vector", "other"}
    assert {area.parts[name] == usual.parts[name] for name in same} == {True}
    assert [term.what for term in area.terms if term.part == "vector"] == ["as stated"]


def test_a_stated_term_leaves_the_others_of_its_part() -> None:
    arch = load_arch(WHOLE)
    usual, area = costs_of(arch).area, with_areas(
        arch, parts={"local banks": "0.3 mm2", "copy load data": "500 um2", "link noc": "0.1 mm2"}
    )  # fmt: skip
    before, after = ({(t.part, t.what): t.mm2.value for t in a.terms} for a in (usual, area))
    assert after["local", "banks"] == pytest.approx(arch.core_count * 0.3)
    assert after["copy", "load: data"] == pytest.approx(arch.core_count * 5e-4)
    assert after["link", "noc"] == pytest.approx(0.1)
    differing = {name for name in before if before[name] != after[name]}
    assert {part for part, _ in differing} == {"local", "copy", "link", "other"}
    assert len(differing) == 4


def test_every_part_of_every_machine_can_be_stated() -> None:
    for arch in load_archs(shipped_names()):
        names = set(area_terms(arch))
        each = with_areas(arch, parts=dict.fromkeys(names, "0.5 mm2"), other="2 mm2")
        assert all(term.mm2.stated for term in each.terms), arch.name
        assert each.total.low == each.total.high


# Figures of memories from a library: asked as its release wants it, or refused in words.


def asking() -> Arch:
    """A machine that asks for the library."""
    return load_arch("soma-edge").model_copy(update={"energy": EnergyTable(source="hwcomponents")})


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hwcomponents_cacti", None)
    with pytest.raises(MissingSource, match="pip install hwcomponents-cacti"):
        costs_of(asking())


def test_check_names_the_missing_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "hwcomponents_cacti", None)
    path = tmp_path / "mine.yaml"
    path.write_text("extends: gemmini-16\nname: mine\nenergy: {source: hwcomponents}\n")
    result = CliRunner().invoke(check, [str(path), "tpu-v1"])
    assert result.exit_code == 2
    assert "mine: arch.energy.source: energy.source is 'hwcomponents'" in result.stderr
    assert "tpu-v1" in result.stdout


@pytest.mark.parametrize("pair", [False, True])
def test_a_library_answers_in_joules_of_an_access(
    monkeypatch: pytest.MonkeyPatch, pair: bool
) -> None:
    """A stand-in with the library's interface: joules, or joules and seconds; area in m2."""
    asked: dict[str, Any] = {}

    def sram(**given: Any) -> SimpleNamespace:
        asked.update(given)
        answer = (3.2e-11, 1e-9) if pair else 3.2e-11
        return SimpleNamespace(read=lambda: answer, write=lambda: answer, area=2e-7)

    monkeypatch.setitem(sys.modules, "hwcomponents_cacti", cast(Any, SimpleNamespace(SRAM=sram)))
    cost = cacti_cost(Sram(64 * 1024, 16, ports=2, banks=4, node=28.0))
    assert (cost.read, cost.write, cost.area) == pytest.approx((2.0, 2.0, 0.2))
    assert asked == {
        "tech_node": pytest.approx(28e-9), "width": 128, "depth": 4096, "n_rw_ports": 2,
        "n_banks": 4,
    }  # fmt: skip


def test_a_release_that_wants_bits_in_all_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def sram(*, tech_node: float, width: int, size: int, n_rw_ports: int, n_banks: int) -> Any:
        asked.update(width=width, size=size)
        return SimpleNamespace(read=lambda: 3.2e-11, write=lambda: 3.2e-11, area=2e-7)

    monkeypatch.setitem(sys.modules, "hwcomponents_cacti", cast(Any, SimpleNamespace(SRAM=sram)))
    cacti_cost(Sram(64 * 1024, 16, banks=4))
    assert asked == {"width": 128, "size": 8 * 64 * 1024}


def _installed(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


@pytest.mark.skipif(not _installed("hwcomponents_cacti"), reason="hwcomponents-cacti is missing")
def test_the_library_is_near_the_fit() -> None:
    memory = Sram(128 * 1024, 16, node=22.0)
    ratio = cacti_cost(memory).read / sram_cost(memory, shipped_table()).read
    assert 1 / 4 < ratio < 4


# Published interfaces to DRAM beside the table that prices them.

FIGURES = shipped_table()
Row = dict[str, str]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    with (SHIPPED.parent / "interface_points.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def pin(row: Row) -> float:
    return float(row["mm2"]) / int(row["pins"])


def gates(row: Row) -> float:
    if row["mgates"]:
        return 1e6 * float(row["mgates"])
    smaller = at_node(FIGURES.area.logic.points, float(row["node"]))
    return 1e6 * float(row["mm2"]) / smaller / FIGURES.area.gates.gate


def test_a_pin_is_the_mean_of_published_ones_and_all_lie_in_its_range(rows: list[Row]) -> None:
    assert {row["kind"] for row in rows} <= FIGURES.interface.keys()
    for kind, known in FIGURES.interface.items():
        own = [row for row in rows if row["kind"] == kind and row["part"] != "controller"]
        measured = [pin(row) for row in own if row["part"] == "phy"]
        if measured:
            assert known.pin == pytest.approx(geometric_mean(measured), rel=0.005), kind
        for row in own:
            assert 0.995 * known.low <= pin(row) <= 1.005 * known.high, row


def test_controllers_are_means_between_the_smallest_and_the_largest(rows: list[Row]) -> None:
    found = {row["kind"]: gates(row) for row in rows if row["part"] == "controller"}
    for name, kinds in {"small": ("ddr3", "lpddr4"), "wide": ("lpddr4", "ddr5", "hbm2")}.items():
        known, sizes = FIGURES.controller[name], [found[kind] for kind in kinds]
        assert known.gates == pytest.approx(geometric_mean(sizes), rel=0.01)
        ends = pytest.approx([min(sizes), max(sizes)], rel=0.01)
        assert [known.low, known.high] == ends
    used = {kind.controller for kind in FIGURES.interface.values()}
    assert used == FIGURES.controller.keys()


def test_every_kind_of_dram_outside_of_the_chip_has_an_interface() -> None:
    assert FIGURES.interface.keys() == FIGURES.dram.keys() - {"sram", "flash"}
