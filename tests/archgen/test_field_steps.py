"""How far fields are changed: as people say it, in steps that hardware has, and compared."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from host_only import invoke, small_model

from archgen.cli.main import cli
from archgen.exploration.plan import load_sensitivity_plan
from archgen.schema.load import load_arch
from archgen.schema.rewritten import changed_to_other
from archgen.schema.variants import factor_of


@pytest.mark.parametrize(
    "text, factor",
    [("10%", 1.1), ("+10 %", 1.1), ("1.5x", 1.5), ("x1.5", 1.5), ("2X", 2.0), (" 0.5% ", 1.005)],
)
def test_steps_are_shares_to_add_or_factors(text: str, factor: float) -> None:
    assert factor_of(text) == pytest.approx(factor)


def test_a_machine_takes_the_nearest_lawful_step() -> None:
    """12 banks divide 1536 KiB; of 13, 14, 15 and 16 only the last does."""
    arch = load_arch("k230-like")
    steps = {field: changed_to_other(arch, field, value, 1.1) for field, value in
             (("memories.local.banks", 12), ("cores", 1), ("clock", 1e9))}  # fmt: skip
    assert {field: found[0] for field, found in steps.items() if found} == {
        "memories.local.banks": 16, "cores": 2, "clock": pytest.approx(1.1e9)
    }  # fmt: skip


def study(folder: Path, **parameters: Any) -> dict[str, Any]:
    return {
        "archs": "k230-like", "models": str(small_model(folder / "small.onnx")),
        "compiler": {"effort": 0}, "verify": False,
        "sensitivity": {"parameters": parameters, "pairs": False},
    }  # fmt: skip


def values(given: dict[str, Any], by: float | None) -> dict[str, tuple[str, ...]]:
    return {each.name: each.texts for each in load_sensitivity_plan(given, by).space.parameters}


def test_one_step_for_all_fields_but_those_with_values_of_their_own(tmp_path: Path) -> None:
    fields = {
        "memories.local.banks": 4, "cores": None, "memories.local.size": None,
        "memories.dram.bandwidth": None, "vector.cost.multiply": None, "matrix.cols": [24, 48],
    }  # fmt: skip
    asked = study(tmp_path, **fields)
    assert values(asked, 1.1) == {
        "memories.local.banks": ("8", "12", "16"),
        "cores": ("1", "2"),
        "memories.local.size": ("1395 KiB", "1.5 MiB", "1689 KiB"),
        "memories.dram.bandwidth": ("11.64 GB/s", "12.8 GB/s", "14.08 GB/s"),
        "vector.cost.multiply": ("0.9091", "1.0", "1.1"),
        "matrix.cols": ("24", "48"),
    }
    assert values(asked, None)["memories.local.banks"] == ("3", "12", "48")
    assert values(asked, None)["cores"] == ("1", "2")


def test_a_delay_that_the_file_does_not_state_has_steps_in_its_own_unit(tmp_path: Path) -> None:
    asked = study(tmp_path, **{"host.latency": 2}) | {"archs": "gemmini-16"}
    assert values(asked, None)["host.latency"] == ("5 us", "10 us", "20 us")


def test_the_verb_prints_steps_and_elasticities_and_the_report_has_them(tmp_path: Path) -> None:
    """A host's call of 64 operations and 8 + 16 values: what it takes, its field tells."""
    path, out = tmp_path / "around.yaml", tmp_path / "out"
    path.write_text(json.dumps(study(tmp_path, **{"memories.dram.bandwidth": None, "clock": 4})))
    words = ["sensitivity", str(path), "--by", "10%", "-j", "1", "-o", str(out)]
    done = CliRunner().invoke(cli, words, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "14.08 GB/s" in done.output and "1.1 GHz" in done.output
    assert "elasticity: per cent of it for one per cent of the field" in done.output
    table = (out / "tornado.csv").read_text().splitlines()
    names = table[0].split(",")
    rows = [dict(zip(names, line.split(","), strict=True)) for line in table[1:]]
    assert {row["own_value"] for row in rows} == {"12.8 GB/s", "1 GHz"}
    for row in rows:
        expected = math.log1p(float(row["high"])) / math.log(1.1)
        assert float(row["elasticity"]) == pytest.approx(expected, abs=1e-6)
    assert "Elasticity" in (out / "report.html").read_text()
    refused = invoke("sensitivity", str(path), "--by", "5")
    assert refused.exit_code == 2
    assert "'5': expected a share to add or a factor, such as 10% or 1.5x" in refused.output
