"""Loading architecture files: YAML 1.2 values, families, names, patterns, and the JSON Schema."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from archgen.cli.explain import schema
from archgen.schema import ArchError, load_arch, load_archs, shipped_names
from archgen.schema.json_schema import file_schema
from simmodel.arch.record import Arch
from simmodel.arch_rules import problems

BASE = """\
name: {name}
clock: 1e9
types: [int8]
memories:
  dram: {{size: 1 GiB, bandwidth: 16 GB/s}}
  local: {{size: 512 KiB, banks: 4}}
  shared: {{size: 1 MiB}}
matrix: {{kind: cube, rows: 4, cols: 1.6e1, depth: 0x10, rate: {{int8: 1}}}}
vector: {{lanes: 16, types: [int8, fp32]}}
copy:
  load: {{from: [dram, shared], to: [local, shared], bandwidth: 32 B/cycle, pad: false}}
  store: {{from: local, to: dram, bandwidth: 32 B/cycle}}
"""


def write(folder: Path, name: str, text: str = BASE) -> Path:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(name=name) if text is BASE else text, encoding="utf-8")
    return path


def test_numbers_follow_yaml_1_2(tmp_path: Path) -> None:
    arch = load_arch(write(tmp_path, "base"))
    assert (arch.clock, arch.matrix.cols, arch.matrix.depth) == (1e9, 16, 16)
    assert arch.copy_["load"].pad is False


def test_words_of_yaml_1_1_stay_words(tmp_path: Path) -> None:
    text = BASE.format(name="no").replace("load:", "on:").replace("store:", "12:30:")
    arch = load_arch(write(tmp_path, "words", text))
    assert arch.name == "no"
    assert list(arch.copy_) == ["on", "12:30"]


def test_a_family_merges_mappings_and_replaces_the_rest(tmp_path: Path) -> None:
    write(tmp_path, "base")
    middle = "extends: base\nname: middle\nmemories: {local: {banks: 8}}\nvector: {types: [int8]}\n"
    write(tmp_path, "middle", middle)
    leaf = (
        "extends: ../middle.yaml\nname: leaf\ncores: 2\nmemories: {shared: null}\n"
        "copy: {load: {from: dram, to: [local]}}\n"
    )
    arch = load_arch(write(tmp_path / "sub", "leaf", leaf))
    assert (arch.name, arch.cores, arch.memories.local.banks) == ("leaf", 2, 8)
    assert arch.memories.local.size == 512 * 1024
    assert arch.vector.types == ("int8",)
    assert arch.memories.shared is None
    assert arch.copy_["load"].bandwidth.amount == 32


def test_a_file_may_extend_a_shipped_one(tmp_path: Path) -> None:
    arch = load_arch(write(tmp_path, "mine", "extends: gemmini-16\nname: mine\nclock: 2 GHz\n"))
    assert (arch.name, arch.clock, arch.matrix.rows) == ("mine", 2e9, 16)


def test_aliases_are_allowed(tmp_path: Path) -> None:
    text = BASE.format(name="alias").replace("bandwidth: 16 GB/s", "bandwidth: &rate 16 GB/s")
    text = text.replace("to: dram, bandwidth: 32 B/cycle", "to: dram, bandwidth: *rate")
    arch = load_arch(write(tmp_path, "alias", text))
    assert arch.copy_["store"].bandwidth == arch.memories.dram.bandwidth


def test_deep_nesting_is_a_mistake_not_a_crash(tmp_path: Path) -> None:
    with pytest.raises(ArchError, match="nested too deeply"):
        load_arch(write(tmp_path, "deep", "[" * 5000))


def test_patterns_names_and_repeats(tmp_path: Path) -> None:
    write(tmp_path, "b")
    first = write(tmp_path, "a")
    names = [arch.name for arch in load_archs([tmp_path / "*.yaml", first, "tpu-v1"])]
    assert names == ["a", "b", "tpu-v1"]


def test_mistakes_of_all_files_come_together_sorted(tmp_path: Path) -> None:
    write(tmp_path, "z", BASE.format(name="z").replace("clock", "clokc"))
    write(tmp_path, "a", BASE.format(name="a").replace("rows: 4", "rows: 0"))
    with pytest.raises(ArchError) as caught:
        load_archs([tmp_path / "z.yaml", tmp_path / "a.yaml", tmp_path / "none*.yaml"])
    files = [Path(mistake.at.file).name for mistake in caught.value.mistakes]
    assert files == ["a.yaml", "none*.yaml", "z.yaml", "z.yaml"]
    assert str(caught.value).count("\n") == 3


def test_shipped_names_load_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_arch(shipped_names()[0]).name == shipped_names()[0]


def test_rules_hold_for_architectures_made_in_code() -> None:
    arch = load_arch("stcp920")
    assert problems(arch) == []
    local = arch.memories.local.model_copy(update={"banks": 7})
    memories = arch.memories.model_copy(update={"local": local})
    broken = arch.model_copy(update={"memories": memories})
    assert [problem.path for problem in problems(broken)] == [("memories", "local", "banks")]


def test_json_schema_speaks_the_names_of_files() -> None:
    result = CliRunner().invoke(schema)
    assert json.loads(result.stdout) == json.loads(json.dumps(file_schema()))
    parts = file_schema()["$defs"]
    assert {"from", "to"} <= set(parts["CopyEngine"]["properties"])
    assert "copy" in parts["Arch"]["properties"]
    assert all(part["additionalProperties"] is False for part in parts.values())


def test_an_architecture_survives_json() -> None:
    for name in shipped_names():
        arch = load_arch(name)
        assert Arch.model_validate_json(arch.model_dump_json(by_alias=True)) == arch
