"""Plausible machines: every rule on both sides of its limit, and what a user sees of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from host_only import invoke

from archgen.lint import RULES, as_argument, findings
from archgen.lint.rules import beyond_limit
from archgen.lint.subject import LintedMachine
from archgen.schema import load_arch, rewritten, shipped_names
from archgen.schema.load import shipped_folder
from archgen.schema.tree import dotted
from simmodel.arch.record import Arch
from simmodel.arch_rules import problems

EDGE = "soma-edge"  # 8192 MACs at 1 GHz, 8 MiB in 16 banks of 64 B, 16 GB/s, 12 nm

BEYOND = {
    rule: (case["machine"], case["beyond"], case["within"])
    for rule, case in yaml.safe_load(Path(__file__).with_name("lint.yaml").read_text()).items()
}
"""Rule -> machine, what is beyond its limit, what just keeps to it."""


def changed(machine: str, over: dict[str, Any]) -> Arch:
    """A shipped machine with some fields set."""
    said = load_arch(machine).model_dump(by_alias=True, exclude_unset=True)
    arch = Arch.model_validate(_laid(said, over))
    assert not problems(arch)
    return arch


def _laid(below: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in over.items():
        deep = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _laid(merged[key], value) if deep else value
    return merged


def names(arch: Arch) -> set[str]:
    return {found.name for found in findings(arch)}


def test_every_rule_has_two_machines_here() -> None:
    assert list(RULES) == list(BEYOND)


@pytest.mark.parametrize("said", ["arch.__class__", "[x for x in types]", "lambda: 1", "a; b"])
def test_a_rule_says_arithmetic_alone(said: str) -> None:
    rule = RULES["clock-slow"].model_copy(update={"when": said})
    with pytest.raises((ValueError, SyntaxError)):
        list(beyond_limit("clock-slow", rule, LintedMachine(load_arch(EDGE))))


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_speaks_beyond_its_limit_and_not_before(rule: str) -> None:
    machine, beyond, within = BEYOND[rule]
    assert rule in names(changed(machine, beyond))
    assert rule not in names(changed(machine, within))


NOTES = {
    "ethos-u55-like": {"vector-real"},  # integers and tables alone, as Vela has them
    "ethos-u65-like": {"vector-real"},
    "mcu-npu": {"vector-real"},
    "gemmini-16": {"vector-real"},  # its host does softmax
    "gemmini-16-loop": {"vector-real"},
    "nvdla-2048": {"vector-real"},  # its tables know no softmax
    "neuroncore-v2-like": {"weights-each-core"},  # cores share no memory but HBM
    "tpu-v3-like": {"weights-each-core"},
}


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_machines_are_plausible(name: str) -> None:
    found = findings(load_arch(name))
    assert {each.name for each in found} == NOTES.get(name, set())
    assert {each.rule.severity for each in found} <= {"note"}


@pytest.mark.parametrize(
    ("field", "thousand"),
    [
        ("copy.load.bandwidth", "0.064 B/cycle"), ("copy.store.bandwidth", "0.064 B/cycle"),
        ("copy.load.outstanding", 16000), ("copy.store.request", 256000),
        ("memories.dram.burst", 64000), ("memories.dram.size", "4000 GiB"),
        ("matrix.startup", "16000 cycles"), ("vector.startup", "8000 cycles"),
        ("memories.local.latency", "4000 cycles"), ("front_end.queue_depth", 16000),
        ("front_end.tokens", 64000), ("host.bandwidth", "8000 GB/s"),
        ("host.bandwidth", "8 MB/s"), ("host.latency", "10 ms"), ("copy.load.startup", "0 cycles"),
        ("copy.load.outstanding", 1), ("copy.store.outstanding", 1), ("matrix.cols", 1),
    ],
)  # fmt: skip
def test_a_unit_mistaken_by_a_thousand_or_a_placeholder_is_seen(
    field: str, thousand: object
) -> None:
    arch = rewritten.changed(load_arch(EDGE), {field: thousand})
    assert arch is not None
    assert f"arch.{field}" in [dotted(each.path) for each in findings(arch)]


@pytest.mark.parametrize(
    ("field", "value", "rules"),
    [
        ("memories.flash.bandwidth", "0.001 B/cycle", {"flash-rate"}),
        ("memories.flash.bandwidth", "10000 B/cycle", {"flash-rate", "dram-unused"}),
        ("memories.flash.size", "32 KiB", {"dram-size"}),
        ("memories.flash.latency", "3 us", {"dram-latency", "requests-in-flight"}),
        ("memories.flash.burst", 64000, {"burst-size"}),
    ],
)
def test_flash_is_looked_at_as_dram_is(field: str, value: object, rules: set[str]) -> None:
    base = load_arch("ethos-u55-256-flash")
    arch = rewritten.changed(base, {field: value})
    assert arch is not None
    found = [each for each in findings(arch) if each.name != "vector-real"]
    assert {each.name for each in found} == rules
    assert {dotted(each.path).split(".")[-2] for each in found} <= {"flash", "weights"}
    assert not any("DRAM" in f"{each.figure} {each.usual}" for each in found)
    assert {each.name for each in findings(base)} == {"vector-real"}


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("startup", "16000 cycles", "latency-long"), ("cols", 1, "array-thin"),
        ("rate", {"int8": 1000.0, "fp16": 0.25}, "rate-far"),
    ],
)  # fmt: skip
def test_a_second_array_is_looked_at_as_the_first_is(field: str, value: object, rule: str) -> None:
    base = load_arch("exynos-2400-like")
    assert not findings(base)
    for at in ("matrix", "engines.shallow"):
        arch = rewritten.changed(base, {f"{at}.{field}": value})
        assert arch is not None
        told = {dotted(each.path) for each in findings(arch) if each.name == rule}
        assert told == {f"arch.{at}.{field}"}


def test_the_best_product_of_a_systolic_array_by_hand() -> None:
    """TPU v1: 4096 entries of sums, half of them for one product; each cycle 256 inputs are read
    and 256 sums of 4 bytes read, added to and written."""
    product = LintedMachine(load_arch("tpu-v1")).best_product
    assert (product.m, product.n, product.k) == (2048, 256, 256)
    assert product.cycles == 2048
    assert product.traffic() == {
        "local": (2048 * 256, 0),
        "weights": (256 * 256, 0),
        "accumulators": (2048 * 1024, 2048 * 1024),
    }


WRONG = """\
name: wrong
extends: soma-edge
memories:
  local:
    size: 128 TiB
copy:
  load: {bandwidth: 4096 B/cycle}
"""


def run(*words: str) -> tuple[int, str]:
    done = invoke("lint", *words)
    return done.exit_code, done.output


def test_findings_stand_at_their_lines_in_the_file_that_says_so(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    code, said = run(str(file))
    assert code == 1
    assert f"{file}:5:11: error: wrong: arch.memories.local.size [area-wafer]" in said
    assert "  128 TiB on the chip, 128 TiB of it local" in said
    assert f"{file}:7:21: warning: wrong: arch.copy.load.bandwidth [copy-port]" in said
    assert "usual: all banks of local together are written at 1,024 B/cycle" in said
    assert said.splitlines()[-1].startswith("1 error, ")


def test_severities_and_what_is_ignored_decide_the_exit_code(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG.replace("128 TiB", "8 MiB"))
    assert run(str(file))[0] == 0  # warnings
    assert run(str(file), "--strict")[0] == 1
    assert run(str(file), "--strict", "--ignore", "copy-port,copy-dram")[0] == 0
    code, said = run(str(file), "--ignore", "copy-prot")
    assert code == 2 and "no rule is called 'copy-prot'; did you mean 'copy-port'?" in said


def test_check_ends_with_0_where_only_warnings_are_left(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    done = invoke("check", str(file), "--ignore", "area-wafer,area-reticle")
    assert done.exit_code == 0
    assert "area-wafer" not in done.output and "warning: wrong: " in done.output


def test_a_shipped_machine_is_asked_for_by_its_name() -> None:
    assert as_argument(str(shipped_folder() / "more" / "hailo-8-like.yaml")) == "hailo-8-like"
    assert as_argument("archs/mine.yaml") == "archs/mine.yaml"
