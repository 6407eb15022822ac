"""Every field of architecture files: changing it changes area, leakage, the energy of an event, or
time; or docs/energy.md says why not."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from role_nets import conv_net, depth_net

import archgen
from archgen.cli.topics import parts
from archgen.energy import costs_of
from archgen.energy.costs import effects
from archgen.schema import load_arch
from archgen.schema.json_schema import arch_view
from archgen.schema.rewritten import changed
from compiler.errors import DoesNotFit
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate
from simmodel.program.program import Program

WHOLE = Path(__file__).with_name("whole_machine.yaml")
PAGE = Path(__file__).parents[2] / "docs" / "energy.md"


def unpriced(what: str) -> list[str]:
    """Fields of the page's table of those that change time alone, or nothing, as patterns."""
    text = PAGE.read_text(encoding="utf-8").partition(f"<!-- unpriced: {what} -->")[2]
    return re.findall(r"^\| `(.*?)` \|", text.partition("<!-- unpriced end -->")[0], re.MULTILINE)


TIME, ELSEWHERE = unpriced("time"), unpriced("elsewhere")
STATED = {
    "energy.mac": {"int8": "0.5 pJ"},
    "energy.vector": {"simple": "1 pJ", "multiply": "2 pJ", "divide": "3 pJ", "special": "4 pJ"},
    "energy.memories": {"local": {"read": "1 pJ/B", "write": "1 pJ/B", "area": "1 mm2"}},
    "energy.links": {"noc": "1 pJ/bit"}, "energy.instruction": "9 pJ", "energy.leakage": "9 mW",
    "energy.area": {"mac": "100 um2", "lane": "1000 um2", "other": "1 mm2",
                    "parts": {"front_end queues": "0.1 mm2"}, "extra": {"pcie": "1 mm2"}},
    "scalar.cost.special": 5,
}  # fmt: skip
"""Every figure that a file may state; and another kind of operation that the scalar unit has most
arithmetic for."""
BY_SIMULATION = [
    ("soma-edge", "matrix.sustained", 0.5),
    ("soma-edge", "memories.dram.latency", "200 ns"), ("soma-edge", "memories.local.mapping",
    "blocked"), ("whole", "memories.local.conflict_penalty", 1.0),
    ("soma-edge", "memories.local.latency", "8 cycles"), ("gemmini-16", "matrix.fold_overlap",
    False), ("soma-edge", "matrix.im2col", False), ("soma-edge", "matrix.startup", "32 cycles"),
    ("soma-edge", "vector.startup", "16 cycles"), ("soma-edge", "copy.load.startup", "32 cycles"),
    ("whole", "links.noc.latency", "10 cycles"), ("soma-edge", "host.compute", "1 GOPS"),
    ("soma-edge", "host.bandwidth", "16 GB/s"), ("soma-edge", "host.latency", "20 us"),
    ("soma-edge", "host.per_inference", "20 us"),
    ("cocco-simba-2c", "front_end.signal", "40 cycles"),
    ("soma-edge", "memories.dram.read_efficiency", 0.5),
    ("soma-edge", "memories.dram.write_efficiency", 0.5),
    ("soma-edge", "memories.dram.run_cost", "20 ns"),
    ("soma-edge", "memories.dram.conflict_penalty", 0.5),
    ("soma-edge", "copy.load.joins_runs", False),
    ("soma-edge", "copy.load.per_request", "100 cycles"),
    ("soma-edge", "copy.load.minimum", "500 cycles"),
]  # fmt: skip
"""Machine, field and value that one program takes another time with."""
_BINARY = "vector.binary.*"
BY_COMPILATION = [
    ("gemmini-16", "matrix.overlap", False), ("gemmini-16", "matrix.granularity", "gemm"),
    ("soma-edge", "matrix.winograd.outputs", 4), ("soma-edge", "matrix.winograd.channels", 8),
    ("gemmini-16", "matrix.max_pixels", 32), ("gemmini-16", "vector.max_extent", 512),
    ("soma-edge", "isa.limits", {_BINARY: {"max_extent": 8}}),
    ("soma-edge", "isa.limits", {_BINARY: {"cost": 4}}),
]  # fmt: skip
"""The same where the program becomes another one."""
_ON_SCALAR = {"scalar.types": ["int8", "int32", "fp16", "fp32"],
              "isa.without": ["vector.unary.sigmoid"]}  # fmt: skip
_BESIDE = {"engines": {"functions": {"lanes": 256}}}
_RING = {"links": {"ring": {"topology": "ring", "from": ["dram"], "to": ["local"],
                            "bandwidth": "1 B/cycle", "ports": [0, 1]}}}  # fmt: skip
BY_DEPTHWISE: list[tuple[str, dict[str, Any], str, Any]] = [
    ("ethos-u55-like", {}, "matrix.depthwise", False),
    ("ascend-310-like", {}, "types", ["int8"]),
    ("soma-edge", {}, "isa.without", ["vector.unary.sigmoid"]),
    ("mcu-npu", _ON_SCALAR, "scalar.startup", "30 cycles"),
    ("cocco-simba-2c", _RING, "links.ring.ports", [0]),
    ("soma-edge", _BESIDE, "engines.functions.startup", "30 cycles"),
    ("soma-edge", _BESIDE, "engines.functions.forms", ["vector.unary.exp"]),
    ("soma-edge", _BESIDE, "engines.functions.max_extent", 8),
]
"""The same of a network with a depthwise convolution and a sigmoid, on a machine with other fields
set before."""
_PACKED: dict[str, Any] = {"encoding": {}}
BY_HAND: list[tuple[str, dict[str, Any], str, Any]] = [
    ("gemmini-16", {}, "copy.load.indirect", 4),
    ("gemmini-16", {}, "copy.load.to", ["local"]),
    ("ascend-310-like", {}, "copy.load.from", ["dram"]),
    ("stream-32x32-4c", {}, "links.bus.to", ["local"]),
    ("wormhole-like", {}, "links.noc.topology", "mesh"),
    ("wormhole-like", {}, "links.noc.shape", [1, 64]),
    ("stream-32x32-4c", {}, "links.bus_out.from", ["local", "weights"]),
    ("gemmini-16", {"vector.reads": ["accumulators"]}, "vector.writes", "accumulators"),
    ("whole", {}, "front_end.fetch_bandwidth", "256 B/cycle"),
    ("soma-edge", {}, "encoding", {}),
    ("soma-edge", {}, "isa.chains", ["mul_mul"]),
    ("soma-edge", {}, "memories.dram.kind", "hbm2"),
    ("soma-edge", {}, "vector.table", "0 cycles"),
    ("soma-edge", _PACKED, "encoding.word", 256),
    ("soma-edge", _PACKED, "encoding.widths", {"*.shape": 8}),
]
"""Fields whose other values only a person would try, with a price each."""
UNSEEN: list[tuple[str, dict[str, Any], str, Any]] = [
    ("soma-edge", {}, "description", "another"),
    ("soma-edge", _PACKED, "encoding.opcodes", {"copy": 99}),
    ("soma-edge", _PACKED, "encoding.numbers", {"*.memory": {"dram": 5, "local": 1}}),
    ("soma-edge", _PACKED, "encoding.order", {"copy": ["dst.*"]}),
]


Programs = dict[str, tuple[Arch, Program, int]]


def schema_fields() -> list[str]:
    """Every field of the schema by its path, `*` for names that users give."""
    found = []
    for part in parts(arch_view()):
        # Memories on the chip are alike: what holds of one role holds of all.
        title = re.sub(r"^memories\.(?!dram|flash).*", "memories.*", part.title)
        title = title.partition(", ")[0]  # what two parts have in common
        title = title.replace("<name>", "*").removeprefix("top level")
        found += [f"{title}.{field.name}".lstrip(".") for field in part.entries]
    return list(dict.fromkeys(found))


def holds(field: str) -> bool:
    """Whether a field is a mapping whose own fields are walked."""
    return any(other.startswith(f"{field}.") for other in schema_fields())


def listed(field: str) -> bool:
    """Whether a field stands in the table; one of all memories stands for each of them."""
    return any(fnmatchcase(field, pattern) for pattern in (*TIME, *ELSEWHERE))


def machine(name: str) -> Arch:
    return load_arch(WHOLE if name == "whole" else name)


@pytest.fixture(scope="module")
def priced() -> set[str]:
    """Fields that change a price on some machine."""
    whole = machine("whole")
    stated = changed(whole, STATED)
    assert stated is not None
    machines = (whole, stated, machine("mcu-npu"), machine("gemmini-16"), machine("tpu-v3-like"))
    found = {effect.field for arch in machines for effect in effects(arch)}
    return found | {field for name, base, field, value in BY_HAND
                    if effect_on_price(name, base, field, value)}  # fmt: skip


def both(name: str, base: dict[str, Any], field: str, value: Any) -> tuple[Arch, Arch]:
    """A machine with the fields of `base`, and the same with another value in one field."""
    arch = changed(machine(name), base) if base else machine(name)
    assert arch is not None
    other = changed(arch, {field: value})
    assert other is not None
    return arch, other


def effect_on_price(name: str, base: dict[str, Any], field: str, value: Any) -> bool:
    arch, other = both(name, base, field, value)
    return costs_of(other) != costs_of(arch)


def test_every_field_is_priced_or_listed(priced: set[str]) -> None:
    missing = [
        field
        for field in schema_fields()
        if not listed(field)
        and not holds(field)
        and not any(fnmatchcase(each, f"{field}*") for each in priced)
    ]
    assert missing == []


def test_nothing_that_is_listed_has_a_price(priced: set[str]) -> None:
    elsewhere = [p for p in ELSEWHERE if p != "energy.source"]  # where its package is installed
    assert [each for each in sorted(priced)
            if any(fnmatchcase(each, p) for p in (*TIME, *elsewhere))] == []  # fmt: skip
    known = schema_fields()
    assert [p for p in (*TIME, *ELSEWHERE) if not any(fnmatchcase(f, p) for f in known)] == []


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Of each machine its program for a tiny network, part of which only the host runs."""
    net = conv_net(tmp_path_factory.mktemp("net") / "net.onnx", odd=True)
    made = {}
    for name in ("soma-edge", "gemmini-16", "whole", "cocco-simba-2c"):
        arch = machine(name)
        program = archgen.compile_model(archgen.load_model(str(net)), arch)
        made[name] = (arch, program, simulate(program, arch).cycles)
    return made


@pytest.mark.parametrize(("name", "field", "value"), BY_SIMULATION)
def test_fields_that_one_program_takes_another_time_with(
    programs: Programs, name: str, field: str, value: Any
) -> None:
    arch, program, cycles = programs[name]
    other = changed(arch, {field: value})
    assert other is not None
    assert simulate(program, other).cycles != cycles


@pytest.mark.parametrize(("name", "field", "value"), BY_COMPILATION)
def test_fields_that_make_another_program(
    programs: Programs, tmp_path: Path, name: str, field: str, value: Any
) -> None:
    arch, _, cycles = programs[name]
    other = changed(arch, {field: value})
    assert other is not None
    net = archgen.load_model(str(conv_net(tmp_path / "net.onnx", odd=True)))
    assert simulate(archgen.compile_model(net, other), other).cycles != cycles


@pytest.mark.parametrize(("name", "base", "field", "value"), BY_DEPTHWISE)
def test_fields_that_a_depthwise_network_takes_another_time_with(
    tmp_path: Path, name: str, base: dict[str, Any], field: str, value: Any
) -> None:
    net = archgen.load_model(str(depth_net(tmp_path / "net.onnx")))
    one, two = (
        simulate(archgen.compile_model(net, each), each) for each in both(name, base, field, value)
    )
    assert one.cycles != two.cycles


@pytest.mark.parametrize(("name", "base", "field", "value"), BY_HAND)
def test_fields_that_are_priced_by_hand(
    name: str, base: dict[str, Any], field: str, value: Any
) -> None:
    assert effect_on_price(name, base, field, value)


@pytest.mark.parametrize(("name", "base", "field", "value"), UNSEEN)
def test_fields_that_nothing_depends_on(
    programs: Programs, name: str, base: dict[str, Any], field: str, value: Any
) -> None:
    _, program, _ = programs[name]
    arch, other = both(name, base, field, value)
    assert costs_of(other) == costs_of(arch)
    assert simulate(program, other).cycles == simulate(program, arch).cycles


def test_what_does_not_fit_into_dram_is_refused(tmp_path: Path) -> None:
    net = archgen.load_model(str(depth_net(tmp_path / "net.onnx")))
    arch, small = both("soma-edge", {}, "memories.dram.size", "4 KiB")
    with pytest.raises(DoesNotFit, match=r"DRAM needs .* has 4 KiB"):
        archgen.compile_model(net, small)
    assert costs_of(small) == costs_of(arch)


def test_every_field_of_time_is_measured() -> None:
    measured = [field for _, field, _ in (*BY_SIMULATION, *BY_COMPILATION)]
    measured += [field for _, _, field, _ in BY_DEPTHWISE]
    assert [p for p in TIME if not any(fnmatchcase(field, p) for field in measured)] == []
