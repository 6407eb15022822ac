"""`archgen explain area`: sums with their fields, and what each field does alone."""

from __future__ import annotations

import re

from click.testing import CliRunner

from archgen.cli.explain import explain
from archgen.energy.sensitivity import effects
from archgen.schema import load_archs


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
