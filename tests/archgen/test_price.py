"""Dollars of a chip and of its inferences, from what a machine's file states."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import archgen
from archgen.cli.main import cli as main
from archgen.energy import costs_of
from archgen.energy.price import dies_per_wafer, price_of, price_row
from archgen.exploration.measures import measure_column
from archgen.schema import load_arch
from archgen.schema.rewritten import changed

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
    assert "usd_per_million" not in price_row(arch, area, throughput=1000.0)
    free = changed(arch, {"price.electricity": 0})
    assert free is not None
    assert "usd_per_million" in price_row(free, area, throughput=1000.0)
    assert price_row(load_arch("soma-edge"), area) == {}


def test_a_study_has_the_columns(tmp_path: Path) -> None:
    file = tmp_path / "priced.yaml"
    file.write_text("extends: soma-edge\nname: priced\nprice: {wafer: 9 kUSD, yield: 0.9}\n")
    study = archgen.study(
        [str(file), "soma-edge"], ["squeezenet:image=64"], effort=[0], out=tmp_path, verify=False
    )
    rows = study.frame.set_index("arch")
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


def test_a_yield_is_stated_once(tmp_path: Path) -> None:
    file = tmp_path / "twice.yaml"
    file.write_text("extends: soma-edge\nname: t\nprice: {wafer: 9, yield: 0.9, defects: 0.1}\n")
    said = CliRunner().invoke(main, ["check", str(file)])
    assert said.exit_code == 2
    assert "price.defects: arch.price.yield states what follows from it" in said.output


@pytest.mark.parametrize("measure", ["chip_usd", "die_yield"])
def test_no_search_is_for_a_price_that_nobody_stated(measure: str) -> None:
    with pytest.raises(ValueError, match="soma-edge has no section price"):
        measure_column(measure, load_arch("soma-edge"))


def test_prices_are_refused_with_their_unit(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("extends: soma-edge\nname: bad\nprice: {wafer: 9000 EUR, yield: 90}\n")
    said = CliRunner().invoke(main, ["check", str(file)])
    assert said.exit_code == 2
    assert "unit 'EUR' is not one of USD, kUSD" in said.output
    assert "price.yield" in said.output
