"""Plausible machines: every rule on both sides of its limit, and what a user sees of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner
from onnx.parser import parse_model

from archgen.cli.main import cli
from archgen.lint import RULES, findings
from archgen.lint.findings import CHECKS
from archgen.lint.product import Product
from archgen.models.traits import kinds_of
from archgen.schema import load_arch, shipped_names
from simmodel.arch import Arch
from simmodel.arch_rules import problems

NARROW = {"types": ["int8", "uint8", "int32"]}
INTEGERS = {"vector": NARROW}
WORDS = {"matrix": {"rate": {"int8": 1, "int16": 0.5}},
         "vector": {"types": ["int8", "uint8", "int16", "int32", "fp32"]}}  # fmt: skip


def dram(rate: int) -> dict[str, object]:
    """Memories with so many bytes of DRAM a cycle, at 1 GHz."""
    return {"memories": {"dram": {"bandwidth": f"{rate} GB/s"}}}


SHARED = {"size": "1 MiB", "banks": 1, "bank_width": 8}
WAYS = {"load": {"from": ["dram", "shared"]}, "store": {"to": ["dram", "shared"]}}
FILL = {"fill": {"from": "dram", "to": "shared", "bandwidth": 16}}
NO_DEPTHWISE = {"depthwise": False}
APART = NO_DEPTHWISE | {"im2col": False}
SMALL = NO_DEPTHWISE | {"cols": 8, "depth": 8}
PEER = {"from": "local", "to": "local", "bandwidth": 32, "peer": True}

EDGE = "soma-edge"  # 8192 MACs at 1 GHz, 8 MiB in 16 banks of 64 B, 16 GB/s, 12 nm
FINE = "gemmini-16"  # tiles of 16 x 16, 64 KiB of accumulators

BEYOND: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # rule: machine, what is beyond its limit, what just keeps to it
    "area-wafer": (EDGE, {"memories": {"local": {"size": "8 TiB"}}},
                   {"memories": {"local": {"size": "1 GiB"}}}),
    "area-reticle": (EDGE, {"memories": {"local": {"size": "4 GiB"}}},
                     {"memories": {"local": {"size": "64 MiB"}}}),
    # twice the 231 MB of a Groq TSP
    "on-chip-size": (EDGE, {"memories": {"local": {"size": "448 MiB"}}},
                     {"memories": {"local": {"size": "432 MiB"}}}),
    # twice 4.4e6 / 300 of the STM32N6 are 29 333 bytes, times 8192 MACs 229.2 MiB
    "sram-per-mac": (EDGE, {"memories": {"local": {"size": "230 MiB"}}},
                     {"memories": {"local": {"size": "229 MiB"}}}),
    "clock-fast": (EDGE, {"clock": 3.65e9}, {"clock": 3.63e9}),  # 1.3 times 2.8 GHz
    # 16 x 0.36 ps x 65 = 374 ps
    "clock-node": (EDGE, {"clock": 2.7e9, "energy": {"node": 65}},
                   {"clock": 2.6e9, "energy": {"node": 65}}),
    "clock-slow": (EDGE, {"clock": 4.9e6}, {"clock": 5e6}),
    # 16.384 TOPS a core, twice 1979 are 3958
    "peak": (EDGE, {"cores": 242}, {"cores": 241}),
    # twice 64000 / 53.7 of Inferentia are 2384; 8192 / 3.43 are 2388
    "macs-per-byte": (EDGE, {"memories": {"dram": {"bandwidth": 3.43}}},
                      {"memories": {"dram": {"bandwidth": 3.44}}}),
    # a quarter of 128 x 0.5 / 4 is 4; 8192 / 2048
    "bytes-per-mac": (EDGE, {"memories": {"dram": {"bandwidth": 2049}}},
                      {"memories": {"dram": {"bandwidth": 2048}}}),
    # 1.5 times 204.8
    "dram-kind": (EDGE, {"memories": {"dram": {"bandwidth": 308}}},
                  {"memories": {"dram": {"bandwidth": 307}}}),
    "dram-size": (EDGE, {"memories": {"dram": {"size": "7 MiB"}}},
                  {"memories": {"dram": {"size": "8 MiB"}}}),
    "dram-latency": (EDGE, {"memories": {"dram": {"latency": 2001}}},
                     {"memories": {"dram": {"latency": 2000}}}),
    "host-faster": (EDGE, {"host": {"compute": 16.5e12}}, {"host": {"compute": 16.3e12}}),
    # nominal at 12 nm is 0.77 V
    "voltage": (EDGE, {"energy": {"voltage": 1.2}}, {"energy": {"voltage": 1.1}}),
    "energy-stated": (EDGE, {"energy": {"mac": {"int8": 200}}}, {"energy": {"mac": {"int8": 0.2}}}),
    "copy-port": (EDGE, {"copy": {"load": {"bandwidth": 1025}}},
                  {"copy": {"load": {"bandwidth": 1024}}}),
    "copy-dram": (EDGE, {"copy": {"load": {"bandwidth": 129}}},
                  {"copy": {"load": {"bandwidth": 128}}}),
    # 64 B/cycle in and 64 out are three quarters of 170.7
    "dram-unused": (EDGE, {"memories": {"dram": {"bandwidth": 171}}},
                    {"memories": {"dram": {"bandwidth": 170}}}),
    "link-port": (EDGE, {"links": {"bus": {"from": "dram", "to": "local", "bandwidth": 1025}}},
                  {"links": {"bus": {"from": "dram", "to": "local", "bandwidth": 1024}}}),
    "link-unused": (EDGE, {"links": {"bus": {"from": "local", "to": "local", "bandwidth": 16}}},
                    {"links": {"bus": {"from": "dram", "to": "local", "bandwidth": 16}}}),
    # 16 x 256 B each latency, half of 16 B/cycle
    "requests-in-flight": (EDGE, {"memories": {"dram": {"latency": 513}}},
                           {"memories": {"dram": {"latency": 512}}}),
    # a quarter of 8 MiB at 64 B/cycle
    "copy-startup": (EDGE, {"copy": {"load": {"startup": 32769}}},
                     {"copy": {"load": {"startup": 32768}}}),
    "shared-slow": (EDGE, {"memories": {"shared": SHARED}, "copy": WAYS},
                    {"memories": {"shared": {**SHARED, "banks": 2}}, "copy": WAYS}),
    "bank-small": (EDGE, {"memories": {"local": {"banks": 65536}}},
                   {"memories": {"local": {"banks": 32768}}}),
    "bank-wide": (EDGE, {"memories": {"local": {"bank_width": 4096}}},
                  {"memories": {"local": {"bank_width": 2048}}}),
    "ports-many": (EDGE, {"memories": {"local": {"ports": 5}}},
                   {"memories": {"local": {"ports": 4}}}),
    "memory-bypassed": (EDGE, {"memories": {"shared": SHARED}, "copy": FILL},
                        {"memories": {"shared": SHARED}, "copy": FILL | WAYS}),
    # 4 x 32 inputs, 32 x 64 weights and 4 x 64 results are 2432 B
    "two-tiles": (EDGE, {"memories": {"local": {"size": "4 KiB"}}},
                  {"memories": {"local": {"size": "5 KiB"}}}),
    # 32 rows of 16 sums of 4 B
    "accumulators-few": (FINE, {"memories": {"accumulators": {"size": "1 KiB"}}},
                         {"memories": {"accumulators": {"size": "2 KiB"}}}),
    # each cycle 16 inputs, and 16 weights of 256 every 16 cycles; three quarters need 24 B
    "array-starved": (FINE, {"memories": {"local": {"banks": 1, "bank_width": 16}}},
                      {"memories": {"local": {"banks": 2, "bank_width": 16}}}),
    "vector-starved": (EDGE, {"memories": {"local": {"banks": 1, "bank_width": 32}}},
                       {"memories": {"local": {"banks": 1, "bank_width": 64}}}),
    "vector-slow": (EDGE, {"vector": {"lanes": 11}}, {"vector": {"lanes": 12}}),  # 8192 / 700
    "vector-extent": (EDGE, {"vector": {"max_extent": 127}}, {"vector": {"max_extent": 128}}),
    "startup-long": (FINE, {"matrix": {"startup": 17}}, {"matrix": {"startup": 16}}),
    # 32 channels together take 3 x 784 x 9 cycles, and their weights, 96 x 32 x 9, 3456 at
    # 8 B/cycle, for 2 x 784 x 9 of the mode
    "depthwise-slow": (EDGE, {"matrix": APART, **dram(4)}, {"matrix": APART, **dram(8)}),
    # 12 times 8 channels together, of depth 72: 12 x 9 x 784 cycles; 9 x 3136 of the lanes
    "depthwise-types": (EDGE, {"matrix": SMALL, "vector": NARROW},
                        {"matrix": SMALL, "vector": NARROW | {"cost": {"multiply": 2}}}),
    "vector-requantize": (EDGE, {"matrix": {"writeback": []}, **INTEGERS},
                          {"matrix": {"writeback": []}}),
    "network-type": (EDGE, {"types": ["int8", "int16"], **WORDS}, {"types": ["int8"], **WORDS}),
    "vector-real": (EDGE, INTEGERS, INTEGERS | {"scalar": {"types": ["fp32"]}}),
    "tokens-few": (EDGE, {"front_end": {"tokens": 4}}, {"front_end": {"tokens": 5}}),
    "queue-shallow": (EDGE, {"front_end": {"queue_depth": 1}}, {"front_end": {"queue_depth": 2}}),
    # 4 engines x 16 B in the 16 cycles of a tile
    "fetch-slow": (FINE, {"front_end": {"fetch_bandwidth": 3.9}},
                   {"front_end": {"fetch_bandwidth": 4}}),
    "loop-buffer-idle": (EDGE, {"front_end": {"loop_buffer": 64}},
                         {"front_end": {"loop_buffer": 64, "fetch_bandwidth": 64}}),
    "cores-apart": (EDGE, {"cores": 2}, {"cores": 2, "copy": {"peer": PEER}}),
    "weights-each-core": (EDGE, {"cores": 2}, {"cores": 2, "copy": {"load": {"broadcast": True}}}),
    # a sixteenth of 16 B/cycle
    "copy-slow": (EDGE, {"copy": {"load": {"bandwidth": 0.99}}},
                  {"copy": {"load": {"bandwidth": 1}}}),
    # 16 B/cycle x 100 cycles x 256 / 256 B
    "requests-many": (EDGE, {"copy": {"load": {"outstanding": 1601}}},
                      {"copy": {"load": {"outstanding": 1600}}}),
    "burst-size": (EDGE, {"memories": {"dram": {"burst": 4}}},
                   {"memories": {"dram": {"burst": 8}}}),
    "latency-long": (EDGE, {"memories": {"local": {"latency": 501}}},
                     {"memories": {"local": {"latency": 500}}}),
    "control-large": (EDGE, {"front_end": {"tokens": 4097}}, {"front_end": {"tokens": 4096}}),
    "issue-wide": (EDGE, {"front_end": {"issue_width": 6}}, {"front_end": {"issue_width": 5}}),
    "rate-far": (EDGE, {"matrix": {"rate": {"int8": 1, "int16": 0.015}}},
                 {"matrix": {"rate": {"int8": 1, "int16": 0.016}}}),
    "dram-large": (EDGE, {"memories": {"dram": {"size": "1025 GiB"}}},
                   {"memories": {"dram": {"size": "1024 GiB"}}}),
    "host-link": (EDGE, {"host": {"bandwidth": "901 GB/s"}}, {"host": {"bandwidth": "899 GB/s"}}),
    "memory-instant": (EDGE, {"memories": {"local": {"latency": 0}}},
                       {"memories": {"local": {"latency": 1}}}),
    "startup-none": (EDGE, {"vector": {"startup": 0}}, {"vector": {"startup": 1}}),
    "array-thin": (FINE, {"matrix": {"rows": 1}}, {"matrix": {"rows": 2}}),
    "host-slow": (EDGE, {"host": {"bandwidth": "99 MB/s"}}, {"host": {"bandwidth": "101 MB/s"}}),
    "host-late": (EDGE, {"host": {"latency": "1.1 ms"}}, {"host": {"latency": "0.9 ms"}}),
}  # fmt: skip


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


def test_every_rule_has_a_function_and_two_machines_here() -> None:
    assert list(RULES) == list(CHECKS) == list(BEYOND)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_speaks_beyond_its_limit_and_not_before(rule: str) -> None:
    machine, beyond, within = BEYOND[rule]
    assert rule in names(changed(machine, beyond))
    assert rule not in names(changed(machine, within))


NOTES = {
    "ascend-310-like": {"depthwise-slow"},  # DaVinci cores have no depthwise mode
    "ethos-u55-like": {"vector-real"},  # integers and tables alone, as Vela has them
    "ethos-u65-like": {"vector-real"},
    "mcu-npu": {"vector-real"},
    "gemmini-16": {"vector-real"},  # its host does softmax
    "gemmini-16-loop": {"vector-real"},
    "nvdla-2048": {"vector-real"},  # its tables know no softmax
    "tpu-v1": {"depthwise-slow"},
    "neuroncore-v2-like": {"depthwise-slow", "weights-each-core"},  # cores share no memory but HBM
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
    over: dict[str, Any] = {}
    part = over
    *above, last = field.split(".")
    for step in above:
        part = part.setdefault(step, {})
    part[last] = thousand
    assert f"arch.{field}" in [each.path for each in findings(changed(EDGE, over))]


def test_the_best_product_of_a_systolic_array_by_hand() -> None:
    """TPU v1: 4096 entries of sums, half of them for one product; each cycle 256 inputs are read
    and 256 sums of 4 bytes read, added to and written."""
    product = Product.best(load_arch("tpu-v1"))
    assert (product.m, product.n, product.k) == (2048, 256, 256)
    assert product.cycles == 2048
    assert product.moved() == {
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
    done = CliRunner().invoke(cli, ["lint", *words])
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


NETS = {"mobilenet_v2": True, "resnet18": False, "shufflenet_v2": True, "bert_base": False}


@pytest.mark.parametrize("net", NETS)
def test_networks_with_depthwise_layers_are_known(net: str) -> None:
    assert kinds_of(net, (), {}, {}) == ({"depthwise"} if NETS[net] else set())


def test_depthwise_layers_of_quantized_files_are_known(tmp_path: Path) -> None:
    """The weights pass a DequantizeLinear; 4 channels in 2 groups are not depthwise."""
    for groups, kinds in ((4, {"depthwise"}), (2, set())):
        net = parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
            net (float[1, 4, 8, 8] x) => (float[1, 4, 6, 6] y)
            <int8[4, {4 // groups}, 3, 3] w = {{{", ".join("1" * 36 * (4 // groups))}}},
             float s = {{0.5}}> {{
                k = DequantizeLinear(w, s)
                y = Conv<group: int = {groups}>(x, k)
            }}""")
        onnx.save(net, tmp_path / "net.onnx")
        assert kinds_of(str(tmp_path / "net.onnx"), (), {}, {}) == kinds
    assert kinds_of(str(tmp_path / "none.onnx"), (), {}, {}) == set()


def test_check_ends_with_0_where_only_warnings_are_left(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    done = CliRunner().invoke(cli, ["check", str(file), "--ignore", "area-wafer,area-reticle"])
    assert done.exit_code == 0
    assert "area-wafer" not in done.output and "warning: wrong: " in done.output
