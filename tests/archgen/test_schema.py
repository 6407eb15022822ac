"""Loading architecture files: YAML 1.2 values, families, names, patterns, and the JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from archgen.cli.machines import schema
from archgen.schema import ArchError, load_arch, load_archs, shipped_names
from archgen.schema.json_schema import file_schema
from archgen.schema.load import shipped_folder
from archgen.schema.rewritten import changed, peaks
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth
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


@pytest.mark.parametrize(("bandwidth", "used"), [(31, "load"), (32, "load"), (33, "fast")])
def test_the_quickest_of_engines_on_one_way_is_used(
    tmp_path: Path, bandwidth: int, used: str
) -> None:
    fast = f"fast: {{from: dram, to: local, bandwidth: {bandwidth} B/cycle}}"
    write(tmp_path, "base")
    arch = load_arch(write(tmp_path, "mine", f"extends: base.yaml\nname: mine\ncopy: {{{fast}}}\n"))
    assert arch.copy_engine("dram", "local") == used
    assert arch.copy_engine("shared", "local") == "load"
    assert arch.copy_engines_like("fast") == ["fast"]  # the other one reads shared memory too
    more = {f"load{n}": arch.copy_["load"].model_copy(update={"bandwidth": Bandwidth(n, True)})
            for n in (8, 64)}  # fmt: skip
    arch = arch.model_copy(update={"copy_": arch.copy_ | more})
    assert arch.copy_engines_like("load") == ["load64", "load", "load8"]


def test_a_kind_of_dram_gives_what_the_file_leaves_out(tmp_path: Path) -> None:
    kinds = {"kind": "lpddr5", "own": "lpddr5, run_cost: 7 ns, channels: 4", "ddr": "ddr4"}
    text = BASE.replace("16 GB/s", "25.6 GB/s, kind: {kind}")
    given, own, ddr = (
        load_arch(write(tmp_path, name, text.format(name=name, kind=kind)))
        for name, kind in kinds.items()
    )
    dram, clock = given.memories.dram, given.clock
    # A channel moves 32 B in 2.5 ns, so two carry 25.6 GB/s. Four rows in 20 ns: a run takes 5 ns,
    # 2.5 more than its burst. Refresh leaves 1 - 280 / 3906. 64 bursts (1 KiB each way), then
    # 33.8 ns of turns. 18.75 + 25 ns to the burst of 2.5.
    assert (dram.channels, dram.burst, dram.conflict_penalty) == (2, 32, 0.21)
    assert (dram.read_efficiency, dram.write_efficiency) == (0.928, 0.928)
    assert (dram.run_cost.at(clock), dram.latency.cycles(clock)) == (2.5, 46)
    assert given.energy.dram == "lpddr5"
    # 10 runs of 64 bytes on a channel of 12.8 B/cycle: 10 * (64 / (12.8 * 0.928) + 2.5) cycles.
    alone = given.far_load("dram", 640, 10, write=False) / (given.dram_bytes_per_cycle / 2)
    assert alone == pytest.approx(10 * (64 / (12.8 * 0.928) + 2.5))
    assert (str(own.memories.dram.run_cost), own.memories.dram.channels) == ("7 ns", 4)
    assert own.memories.dram.burst == dram.burst
    other = changed(given, {"memories.dram.kind": "ddr4"})
    assert other is not None
    assert (other.memories, other.energy) == (ddr.memories, ddr.energy)
    twice = changed(given, {"memories.dram.bandwidth": "51.2 GB/s"})
    assert twice is not None and twice.memories.dram.channels == 4
    assert load_arch(write(tmp_path, "none")).memories.dram.run_cost.amount == 0


def test_aliases_are_allowed(tmp_path: Path) -> None:
    text = BASE.format(name="alias").replace("bandwidth: 16 GB/s", "bandwidth: &rate 16 GB/s")
    text = text.replace("to: dram, bandwidth: 32 B/cycle", "to: dram, bandwidth: *rate")
    arch = load_arch(write(tmp_path, "alias", text))
    assert arch.copy_["store"].bandwidth == arch.memories.dram.bandwidth


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


def test_machines_for_one_feature_each_load_by_their_names() -> None:
    more = sorted(path.stem for path in shipped_folder().glob("more/*.yaml"))
    assert {"dpu-b4096", "ethos-u55-256-flash"} <= {*more}
    assert [load_arch(name).name for name in more] == more
    assert not {*more} & {*shipped_names()}


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


# Shipped architectures.

ARCHS = {arch.name: arch for arch in load_archs(shipped_names())}
LINES = 60
COLUMNS = 100

# Machine, element type, peak TOPS as published, and where.
PUBLISHED = [
    ("cocco-simba-1c", "int8", 2.048, "Cocco, ASPLOS 2024: 1024 MACs at 1 GHz"),
    ("cocco-simba-4c", "int8", 8.192, "Cocco, ASPLOS 2024: four such cores"),
    ("stream-32x32-4c", "int8", 8.192, "Stream, TPU-like example: four arrays of 32 x 32"),
    ("soma-edge", "int8", 16, "SoMa, HPCA 2025: edge, 16 TOPS"),
    ("stcp920", "fp16", 128, "GraphTurbo, OSDI 2023: 128 TFLOPS"),
    ("stcp920", "int8", 256, "GraphTurbo, OSDI 2023: 256 TOPS"),
    ("k230-like", "int8", 6, "Canaan's announcement: 6 TOPS"),
    ("gemmini-16", "int8", 0.512, "Gemmini, DAC 2021: 256 MACs, at 1 GHz"),
    ("nvdla-2048", "int8", 4.096, "nvdla.org primer: 2048 MACs at 1 GHz"),
    ("tpu-v1", "int8", 92, "Jouppi et al., ISCA 2017: 92 TOPS"),
    ("ascend-310-like", "fp16", 70, "Atlas 300I Pro data sheet: 70 TFLOPS"),
    ("ascend-310-like", "int8", 140, "Atlas 300I Pro data sheet: 140 TOPS"),
    ("ethos-u65-like", "int8", 1.0, "Arm, Ethos-U65: up to 1 TOPS"),
    ("ethos-u55-like", "int8", 0.128, "Arm, Ethos-U55: 128 MACs, at 500 MHz"),
    ("neuroncore-v2-like", "bf16", 190, "AWS, Inferentia2: 190 TFLOPS"),
    ("neuroncore-v2-like", "int8", 380, "AWS, Inferentia2: 380 TOPS"),
    ("tpu-v3-like", "bf16", 123, "Jouppi et al., CACM 63(7), 2020: 123 TFLOPS"),
]

# Machine, memory role (or "chip" for all of the chip), bytes as published.
CAPACITIES = [
    ("cocco-simba-1c", "chip", 1344 * 2**10),
    ("cocco-simba-2c", "chip", 2 * 768 * 2**10),
    ("cocco-simba-4c", "chip", 4 * 448 * 2**10),
    ("soma-edge", "chip", 8 * 2**20),
    ("stream-32x32", "local", 2 * 2**20),
    ("mcu-npu", "chip", 384 * 2**10),
    ("k230-like", "local", 3 * 2**19),
    ("tpu-v1", "local", 24 * 2**20),
    ("tpu-v1", "accumulators", 4 * 2**20),
    ("nvdla-2048", "local", 512 * 2**10),
    ("stcp920", "shared", 8 * 2**20),
]


@pytest.mark.parametrize(("name", "dtype", "tops", "source"), PUBLISHED)
def test_derived_peak_agrees_with_the_published_one(
    name: str, dtype: str, tops: float, source: str
) -> None:
    assert peaks(ARCHS[name]).tops[dtype] == pytest.approx(tops, rel=0.04), source


@pytest.mark.parametrize(("name", "role", "size"), CAPACITIES)
def test_capacity_agrees_with_the_published_one(name: str, role: str, size: int) -> None:
    arch = ARCHS[name]
    found = peaks(arch).on_chip if role == "chip" else arch.memories.on_chip()[role].size
    assert found == size


def test_widths_agree_with_the_published_ones() -> None:
    stcp = peaks(ARCHS["stcp920"]).bytes_per_cycle
    assert (stcp["local"], stcp["shared"]) == (512, 256), "512 and 256 GB/s at 1 GHz"
    tpu = ARCHS["tpu-v1"].memories.local
    assert (tpu.bytes_per_cycle(), tpu.bytes_per_cycle(write=True)) == (256, 256)


def test_ridge_point_of_the_tpu_is_the_published_one() -> None:
    # Jouppi et al., ISCA 2017, figure 5: 1350 operations (multiply-accumulates) per weight byte.
    assert peaks(ARCHS["tpu-v1"]).ridge == pytest.approx(1350, rel=0.01)


def test_no_shipped_machine_contradicts_itself() -> None:
    assert {name: problems(arch) for name, arch in ARCHS.items() if problems(arch)} == {}


def test_range_of_the_shipped_machines() -> None:
    archs = list(ARCHS.values())
    dram = [a.memories.dram.bandwidth.at(a.clock) * a.clock / 1e9 for a in archs]
    banks = {a.memories.local.banks for a in archs}
    on_chip = [peaks(a).on_chip for a in archs]
    assert len(archs) >= 12
    assert {a.core_count for a in archs} >= {1, 2, 4, 32}
    assert {min(banks), max(banks)} == {1, 16}
    assert min(dram) <= 0.5
    assert max(dram) >= 900
    assert min(on_chip) <= 64 * 2**10
    assert max(on_chip) >= 24 * 2**20
    assert {a.matrix.granularity for a in archs} == {"tile", "gemm", "conv"}
    assert {a.front_end.sync for a in archs} == {"tokens", "interlock"}
    assert {a.vector.rank for a in archs} == {1, 2, 3}
    assert {a.memories.local.mapping for a in archs} == {"interleaved", "blocked"}


@pytest.mark.parametrize("path", sorted(shipped_folder().glob("*.yaml")), ids=lambda p: p.stem)
def test_each_file_fits_one_screen_and_names_its_sources(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert load_arch(path).name == path.stem
    assert lines[0].startswith("# ")
    family = any(line.startswith("extends:") for line in lines)
    assert family or "[" in "".join(lines[:3]), "each file names its sources at the top"
    assert family or any("assumed" in line for line in lines)
