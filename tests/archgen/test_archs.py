"""The shipped machines: their derived peaks against published ones, and the range they cover."""

from pathlib import Path

import pytest

from archgen.schema import load_arch, load_archs, shipped_names
from archgen.schema.load import shipped_folder
from archgen.schema.rewritten import peaks
from simmodel.arch_rules import problems

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
