"""A machine that another tool has a file of, as one of archgen's.

    python studies/10_import_machine.py scale.cfg
    python studies/10_import_machine.py eyeriss.yaml --out machines
    python studies/10_import_machine.py vela.ini --accelerator ethos-u65-512 \
        --system Ethos_U65_High_End --mode Shared_Sram

Reads SCALE-Sim's configurations, ZigZag's hardware, Timeloop's architectures (0.3, 0.4 and what its
front end writes) and Vela's system configurations. What you should see: `NAME.yaml`, in which each
value has a comment with the key that it comes from, or `assumed` where that tool has no such thing;
below it, line by line, what the file says and archgen's machines have no place for. Read both
before you trust a figure: another tool's file leaves out what its own model does not need.
"""

from __future__ import annotations

import argparse
import configparser
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import archgen

ASSUMED = "assumed"
BYTES = {"int8": 1, "fp16": 2, "bf16": 2, "fp32": 4}
WIDER = "; integers of over 8 bits as real numbers, since networks are quantized to int8"
ORDER = (
    "name", "extends", "description", "clock", "types", "cores", "memories", "matrix", "vector",
    "copy", "energy",
)  # fmt: skip
Values = Mapping[str, Any]


@dataclass
class Draft:
    """A machine's file in the making."""

    name: str
    fields: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Path such as `matrix.rows` -> value and its source."""
    left: list[str] = field(default_factory=list)
    """What has no place in it."""

    def put(self, path: str, value: object, source: str = ASSUMED) -> None:
        self.fields[path] = (str(value), source)

    def leave(self, source: str, why: str) -> None:
        self.left.append(f"{source}: {why}")

    def complete(self, dtype: str, lanes: int, load: float) -> None:
        """Add what every machine has: an engine of `lanes` for all but products, copies of `load`
        bytes a cycle."""
        kinds = ["int8", "uint8", "int32", "fp32"] if dtype == "int8" else [dtype, "fp32"]
        # Requests enough for the assumed latency: these tools have no limit to them.
        engine = f"bandwidth: {load:g} B/cycle, outstanding: {max(16, math.ceil(load * 100 / 256))}"
        targets = [role for role in ("local", "weights") if f"memories.{role}.size" in self.fields]
        rest = {
            "clock": "1 GHz", "types": f"[{dtype}]",
            "memories.dram.size": "4 GiB", "memories.dram.latency": "100 ns",
            "matrix.rate": f"{{{dtype}: 1}}", "matrix.writeback": "[bias, clip, requantize]",
            "vector.lanes": lanes, "vector.types": f"[{', '.join(dict.fromkeys(kinds))}]",
            "copy.load": f"{{from: dram, to: [{', '.join(targets)}], {engine}}}",
            "copy.store": f"{{from: local, to: dram, {engine}}}",
        }  # fmt: skip
        if "memories.weights.size" in self.fields:
            rest["matrix.weights"] = "weights"
        if "memories.accumulators.size" in self.fields:
            rest |= {"matrix.output": "accumulators", "vector.reads": "[local, accumulators]"}
        for path, value in rest.items():
            self.fields.setdefault(path, (str(value), ASSUMED))

    def text(self) -> str:
        """The file: values in the order of archgen's own files, each with its source."""
        tree: dict[str, Any] = dict.fromkeys(ORDER)
        for path, value in ({"name": (self.name, "")} | self.fields).items():
            *parents, leaf = path.split(".")
            node = tree
            for parent in parents:
                node[parent] = node = node.get(parent) or {}
            node[leaf] = value
        head = [f"# {self.name}, by 10_import_machine.py. Not translated:"] if self.left else []
        return "\n".join([*head, *(f"# {line}" for line in self.left), *_lines(tree, "")]) + "\n"


def _lines(tree: Values, indent: str) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        elif value:
            text, source = value
            yield f"{f'{indent}{key}: {text}':<38}  # {source}".removesuffix("  # ").rstrip()


def main() -> None:
    """Read, write, check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--type", choices=BYTES, help="SCALE-Sim: what a word is [default: int8]")
    parser.add_argument("--accelerator", help="Vela: ethos-u55-32 to -256, ethos-u65-256 or -512")
    parser.add_argument("--system", help="Vela: a system configuration [default: the only one]")
    parser.add_argument("--mode", help="Vela: a memory mode [default: the only one]")
    asked = parser.parse_args()
    try:
        draft = read(asked)
        asked.out.mkdir(parents=True, exist_ok=True)
        path = asked.out / f"{draft.name}.yaml"
        path.write_text(draft.text(), encoding="utf-8")
        arch = archgen.load_arch(path)
    except KeyError as missing:
        sys.exit(f"{asked.file}: no {missing}")
    except (OSError, ValueError, configparser.Error, yaml.YAMLError) as why:
        sys.exit(f"{asked.file}: {why}")
    assumed = [name for name, (_, source) in draft.fields.items() if source == ASSUMED]
    print(f"{path}, of which assumed: {', '.join(assumed) or 'nothing'}")
    print("\n".join(["Not translated:", *draft.left]) if draft.left else "All is translated.")
    peak = arch.peak_macs(arch.types[0])
    print(f"{peak:g} MACs and {arch.dram_bytes_per_cycle:g} B of DRAM per cycle")


def read(asked: argparse.Namespace) -> Draft:
    """Draft of the machine in a file, by what the file holds."""
    text = asked.file.read_text(encoding="utf-8")
    if asked.file.suffix in (".cfg", ".ini"):
        config = configparser.ConfigParser(inline_comment_prefixes=("#", ";"))
        config.read_string(text)
        if "architecture_presets" in config:
            return scale_sim(config, asked.file.stem, asked.type or "int8")
        return vela(config, asked)
    document = yaml.load(text, Loader=_Loader)
    if isinstance(document, Mapping) and "memories" in document:
        return zigzag(document, asked.file.stem)
    if isinstance(document, Mapping) and "architecture" in document:
        return timeloop(document["architecture"], asked.file.stem)
    raise ValueError(
        "neither [architecture_presets] of SCALE-Sim, [System_Config...] of Vela, `memories` of "
        "ZigZag nor `architecture` of Timeloop"
    )


class _Loader(yaml.SafeLoader):
    """Timeloop's tags (!Component, !Container) as keys."""


def _tagged(loader: _Loader, tag: str, node: yaml.Node) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return {"tag": tag} | loader.construct_mapping(node, deep=True)


_Loader.add_multi_constructor("!", _tagged)


# SCALE-Sim: https://scale-sim-project.readthedocs.io, "config". Sizes in kB, bandwidth in words.


def scale_sim(config: configparser.ConfigParser, stem: str, dtype: str) -> Draft:
    """Draft of `[architecture_presets]`, whose words are of `dtype`."""
    preset, word = config["architecture_presets"], BYTES[dtype]
    draft = Draft(_name(config.get("general", "run_name", fallback=stem), stem))
    rows, cols = int(preset["ArrayHeight"]), int(preset["ArrayWidth"])
    flows = {"ws": "weight", "os": "output", "is": "input"}
    draft.put("types", f"[{dtype}]", "--type" if dtype != "int8" else ASSUMED)
    draft.put("matrix.kind", "systolic", "SCALE-Sim")
    draft.put("matrix.rows", rows, "ArrayHeight")
    draft.put("matrix.cols", cols, "ArrayWidth")
    draft.put("matrix.dataflow", flows[preset["Dataflow"].strip()] + "-stationary", "Dataflow")
    kb = "SramSzkB" if "IfmapSramSzkB" in preset else "SramSz"
    size = {part: float(preset[part + kb]) for part in ("Ifmap", "Filter", "Ofmap")}
    feature_maps = f"{size['Ifmap'] + size['Ofmap']:g} KiB"
    draft.put("memories.local.size", feature_maps, "IfmapSramSzkB + OfmapSramSzkB")
    draft.put("memories.weights.size", f"{size['Filter']:g} KiB", "FilterSramSzkB")
    for role, part, words in (("local", "Ifmap", rows + cols), ("weights", "Filter", cols)):
        _scale_sim_banks(draft, config, role, part, words * word)
    limited = config.get("run_presets", "InterfaceBandwidth", fallback="USER").upper() == "USER"
    source = "Bandwidth" if limited else f"{ASSUMED}: with CALC SCALE-Sim's DRAM never stalls"
    bandwidth = float(preset.get("Bandwidth", "10").split(",")[0]) * word
    draft.put("memories.dram.bandwidth", f"{bandwidth:g} B/cycle", source)
    draft.leave("Bandwidth", "SCALE-Sim gives it to each of three buffers, here they share it")
    for section, key in ((s, k) for s in config.sections() for k in config[s]):
        why = _SCALE_SIM_LEFT.get(key) or _SCALE_SIM_LEFT.get(section)
        if why and config[section][key].strip().lower() not in ("false", "none", "0"):
            draft.leave(f"{key} = {config[section][key]}", why)
    draft.complete(dtype, cols, bandwidth)
    return draft


_SCALE_SIM_LEFT = {
    "ifmapoffset": "addresses are the compiler's", "filteroffset": "addresses are the compiler's",
    "ofmapoffset": "addresses are the compiler's",
    "memorybanks": "DRAM's banks are not modelled", "readrequestbuffer": "no queue of requests",
    "writerequestbuffer": "no queue of requests", "useramulatortrace": "DRAM is not Ramulator's",
    "sparsity": "arrays are dense", "timelinearmodel": "times are simulated",
}  # fmt: skip
"""Key or section -> why it has no place."""


def _scale_sim_banks(
    draft: Draft, config: configparser.ConfigParser, role: str, part: str, least: int
) -> None:
    """Put banks of a buffer as [layout] states them, or that serve `least` bytes in a cycle."""
    fed = f"{ASSUMED}: the array is fed in each cycle"
    number = config.get("layout", f"{part}SRAMBankNum", fallback=None)
    width = config.get("layout", f"{part}SRAMBankBandwidth", fallback=None)
    ports = config.get("layout", f"{part}SRAMBankPort", fallback=None)
    draft.put(f"memories.{role}.banks", number or 2, f"{part}SRAMBankNum" if number else ASSUMED)
    draft.put(f"memories.{role}.bank_width", f"{width or 1 << max(0, least - 1).bit_length()} B",
              f"{part}SRAMBankBandwidth" if width else fed)  # fmt: skip
    if ports:
        draft.put(f"memories.{role}.ports", ports, f"{part}SRAMBankPort")


# ZigZag: https://kuleuven-micas.github.io/zigzag, "Hardware Architecture". Sizes are in bits.


def zigzag(document: Values, stem: str) -> Draft:
    """Draft of an array of operational units and its memories."""
    array = document.get("operational_array") or document["multipliers"]
    draft = Draft(_name(document.get("name", stem), stem))
    size = dict(zip(array["dimensions"], array["sizes"], strict=True))
    levels = {
        operand: [n for n, m in document["memories"].items() if operand in m["operands"]]
        for operand in ("I1", "I2", "O")
    }
    shared = {o: document["memories"][names[0]]["served_dimensions"] for o, names in levels.items()}
    axes = {"depth": "O", "rows": "I2", "cols": "I1"}
    sides, free = dict.fromkeys(axes, 1), dict(size)
    draft.put("matrix.kind", "cube", "ZigZag counts no fill")
    for side, operand in axes.items():
        for name in [n for n in free if n in shared[operand] or side == "cols"]:
            sides[side] *= free.pop(name)
        near = levels[operand][0]
        draft.put(f"matrix.{side}", sides[side], f"sizes: what one {near} serves, {operand}")
    bits = array.get("input_precision", [8])[0]
    dtype = "int8" if bits <= 8 else "fp16"
    source = (
        f"input_precision{WIDER if bits > 8 else ''}" if "input_precision" in array else ASSUMED
    )
    draft.put("types", f"[{dtype}]", source)
    energy = array.get("unit_energy", array.get("multiplier_energy"))
    if energy:
        draft.put("energy.mac", f"{{{dtype}: {energy} pJ}}", "unit_energy")
    bandwidth = _zigzag_memories(draft, document["memories"], levels, set(size))
    draft.leave("area", "in units of no scale")
    draft.leave("spatial mapping", "what a dimension stands for is taken from what registers serve")
    draft.complete(dtype, sides["cols"], bandwidth)
    return draft


def _zigzag_memories(
    draft: Draft, memories: Values, levels: dict[str, list[str]], dims: set[str]
) -> float:
    """Put the memories that lie outside the array; returns bytes of DRAM in a cycle."""
    outer = max(memories, key=lambda name: memories[name]["size"])
    whole = [n for n, m in memories.items() if set(m["served_dimensions"]) >= dims and n != outer]
    may = {
        "local": [n for n in levels["I1"] if n in whole],
        "weights": [n for n in whole if memories[n]["operands"] == ["I2"]],
        "accumulators": [n for n in whole if memories[n]["operands"] == ["O"]],
    }
    roles = {
        role: max(names, key=lambda name: memories[name]["size"], default=None)
        for role, names in may.items()
    }
    if roles["local"] is None:
        raise ValueError("no memory on the chip holds I1 for the whole array")
    for role, name in roles.items():
        if name:
            _zigzag_memory(draft, role, name, memories[name])
    for name in memories:
        if name not in (outer, *roles.values()):
            inside = "a register of the array" if name not in whole else "a level more"
            draft.leave(f"{name} ({_zigzag_size(memories[name])})", inside)
    there, _ = _zigzag_port(memories[outer])
    draft.put("memories.dram.size", _zigzag_size(memories[outer]), f"{outer}.size")
    draft.put("memories.dram.bandwidth", f"{there / 8:g} B/cycle", f"{outer}: its port")
    _zigzag_energy(draft, "dram", outer, memories[outer], there)
    return there / 8


def _zigzag_memory(draft: Draft, role: str, name: str, memory: Values) -> None:
    bits, ports = _zigzag_port(memory)
    draft.put(f"memories.{role}.size", _zigzag_size(memory), f"{name}.size")
    draft.put(f"memories.{role}.banks", 1, "ZigZag has no banks")
    draft.put(f"memories.{role}.bank_width", f"{bits // 8} B", f"{name}: its widest port")
    for kind, count in ports.items():
        draft.put(f"memories.{role}.{kind}", count, f"{name}: ports")
    draft.put(f"memories.{role}.latency", f"{memory.get('latency', 1)} cycles", f"{name}.latency")
    _zigzag_energy(draft, role, name, memory, bits)


def _zigzag_port(memory: Values) -> tuple[int, dict[str, int]]:
    """Bits in a cycle of the widest port, and how many there are."""
    if "r_bw" in memory:
        bits = max(memory["r_bw"], memory["w_bw"])
        counts = (memory["r_port"], memory["w_port"], memory["rw_port"])
    else:
        bits = max(port["bandwidth_max"] for port in memory["ports"])
        kinds = [port["type"] for port in memory["ports"]]
        counts = (kinds.count("read"), kinds.count("write"), kinds.count("read_write"))
    reads, writes, both = counts
    if reads and writes:
        return bits, {"read_ports": reads + both, "write_ports": writes + both}
    return bits, {"ports": max(1, reads + writes + both)}


def _zigzag_energy(draft: Draft, role: str, name: str, memory: Values, bits: int) -> None:
    for verb, key in (("read", "r_cost"), ("write", "w_cost")):
        if memory.get(key) and not memory.get("auto_cost_extraction"):
            cost = f"{memory[key] / bits:.4g} pJ/bit"
            draft.put(f"energy.memories.{role}.{verb}", cost, f"{name}.{key} over {bits} bits")


def _zigzag_size(memory: Values) -> str:
    return f"{memory['size'] // 8} B"


# Timeloop: https://timeloop.csail.mit.edu/v4/input-formats/design/architecture. Widths are in bits.


@dataclass(frozen=True)
class Level:
    """A storage level or the compute units, outermost first."""

    name: str
    kind: str
    values: dict[str, Any]
    """Attributes, those of what surrounds it included."""
    width: int
    """Instances along X."""
    count: int
    """Instances."""


def timeloop(architecture: Values, stem: str) -> Draft:
    """Draft of a hierarchy of storage levels above units that multiply."""
    levels = [level for level in _levels([architecture], {}, (1, 1)) if level.kind]
    draft, units = Draft(_name(stem, stem)), levels[-1]
    stores = [v for v in levels[:-1] if v.kind != "dummy_storage" and _timeloop_bytes(v)]
    drams = [v for v in levels if v.kind.upper() == "DRAM"]
    if not drams or not stores:
        raise ValueError("a level of class DRAM and a storage level on the chip are needed")
    local = stores[0]
    macs = units.count // local.count
    cols = max(1, units.width // local.width)
    bits = int(units.values.get("datawidth", units.values.get("word-bits", 8)))
    integers = "fp" not in units.kind.lower()
    dtype = "int8" if integers and bits <= 8 else "fp16" if bits <= 16 else "fp32"
    wider = WIDER if integers and bits > 8 else ""
    draft.put("types", f"[{dtype}]", f"{units.name}: class and width of its data{wider}")
    draft.put("cores", local.count, f"instances of {local.name}")
    draft.put("matrix.kind", "cube", "Timeloop counts no fill")
    draft.put("matrix.cols", cols, f"{units.name}: X of the mesh, {ASSUMED} channels")
    draft.put("matrix.depth", macs // cols, f"{units.name}: the rest of it, {ASSUMED} reduction")
    draft.put("matrix.rows", 1)
    _timeloop_memory(draft, local)
    per_cycle = _timeloop_dram(draft, drams[0])
    for level in stores[1:]:
        size = _timeloop_bytes(level)
        draft.leave(f"{level.name} ({level.count} x {size:g} B)", "inside the array")
    draft.leave("constraints and mapping", "what the mesh stands for lies there; the compiler maps")
    _timeloop_technology(draft, units)
    draft.complete(dtype, cols, per_cycle)
    return draft


def _levels(nodes: Sequence[Values], above: Values, mesh: tuple[int, int]) -> Iterator[Level]:
    """Levels in order. A container of 0.4 surrounds what follows it, a subtree of 0.3 what it
    holds."""
    for node in nodes:
        own, spatial = node.get("attributes") or {}, node.get("spatial") or {}
        name, _, last = str(node.get("name", "")).partition("[")
        bounds = [int(n) for n in re.findall(r"\d+", last)]
        copies = bounds[-1] - bounds[0] + 1 if len(bounds) == 2 else (bounds or [1])[0]
        x = spatial.get("meshX", 1 if spatial else copies)
        here = (mesh[0] * x, mesh[1] * max(copies, x * spatial.get("meshY", 1)))
        if "power_gated_at" in own:  # as the front end writes it: counts are of the whole chip
            here = (here[0], copies)
        values = {**above, **own}
        if kind := str(node.get("class") or ""):
            yield Level(name.split(".")[-1], kind, values, int(own.get("meshX", here[0])), here[1])
        inner = [*(node.get("local") or []), *(node.get("subtree") or [])]
        yield from _levels([*inner, *(node.get("nodes") or [])], values, here)
        if node.get("tag") == "Container":
            above, mesh = values, here


def _timeloop_bytes(level: Level) -> float:
    """Size of one instance; 0: it states none."""
    values = level.values
    if level.kind.upper() == "DRAM":
        return 0
    if "sizeKB" in values:
        return float(values["sizeKB"]) * 1024
    depth = values.get("depth", values.get("memory_depth"))
    width = values.get("width", values.get("memory_width", values.get("word-bits", 0)))
    if depth is None and "entries" in values:
        depth, width = values["entries"], values.get("word-bits", width)
    try:
        return float(str(depth)) * float(str(width)) / 8
    except ValueError:  # none, or a word such as INF
        return 0


def _timeloop_memory(draft: Draft, level: Level) -> None:
    """Put the buffer, with as many banks as its bandwidth takes: Timeloop limits that by itself."""
    values = level.values
    width = int(values.get("width", values.get("memory_width", 128)))
    banks, ports = int(values.get("n_banks", 1)), None
    words = sum(float(values.get(f"{way}_bandwidth", 0)) for way in ("read", "write"))
    if words:
        bits = int(values.get("datawidth", values.get("word-bits", 8)))
        banks = max(1, round(words * bits / width))
        source = f"read_bandwidth + write_bandwidth; n_banks = {values.get('n_banks', 1)}"
    else:
        ports, source = values.get("n_rdwr_ports", values.get("nports")), "n_banks"
    row = banks * width // 8
    draft.put("memories.local.size", f"{_timeloop_bytes(level) // row * row:g} B",
              f"{level.name}: depth x width")  # fmt: skip
    draft.put("memories.local.banks", banks, f"{level.name}: {source}")
    draft.put("memories.local.bank_width", f"{width // 8} B", f"{level.name}.width")
    if ports:
        draft.put("memories.local.ports", ports, f"{level.name}: its ports")


def _timeloop_dram(draft: Draft, level: Level) -> float:
    """Put DRAM; returns its bytes in a cycle."""
    values = level.values
    keys = ("shared_bandwidth", "shared-bandwidth", "read_bandwidth")
    words = next((values[key] for key in keys if key in values), None)
    bits = int(values.get("datawidth", values.get("word-bits", 8)))
    per_cycle = float(words) * bits / 8 if words else int(values.get("width", 64)) / 8
    source = "words in a cycle" if words else f"width, in each cycle {ASSUMED}"
    draft.put("memories.dram.bandwidth", f"{per_cycle:g} B/cycle", f"{level.name}: {source}")
    kind = str(values.get("type", "")).lower()
    if kind in ("lpddr4", "lpddr5", "ddr3", "ddr4", "gddr5", "hbm2"):
        draft.put("energy.dram", kind, f"{level.name}.type")
    return per_cycle


def _timeloop_technology(draft: Draft, units: Level) -> None:
    if node := re.match(r"([\d.]+) *nm", str(units.values.get("technology", ""))):
        draft.put("energy.node", f"{node[1]} nm", "technology")
    if seconds := units.values.get("global_cycle_seconds"):
        draft.put("clock", f"{1e-6 / float(seconds):.6g} MHz", "global_cycle_seconds")


# Vela: Arm's ethos-u-vela, OPTIONS.md. Clock scales are shares of the core's clock, of one port.

ETHOS = {
    "ethos-u55-32": (1, 4, 8), "ethos-u55-64": (1, 8, 8), "ethos-u55-128": (2, 8, 8),
    "ethos-u55-256": (4, 8, 8), "ethos-u65-256": (4, 8, 8), "ethos-u65-512": (4, 16, 8),
}  # fmt: skip
"""Accelerator -> pixels, output channels and input channels of a cycle."""
PORT = {"ethos-u55": 8, "ethos-u65": 16}
"""Bytes of an AXI port in a cycle."""


def vela(config: configparser.ConfigParser, asked: argparse.Namespace) -> Draft:
    """Draft of an Ethos-U in one of the systems of a file."""
    accelerator = asked.accelerator or config.get("architecture", "macs", fallback=None)
    if accelerator and accelerator.isdigit():
        accelerator = f"ethos-u55-{accelerator}"
    if accelerator not in ETHOS:
        raise ValueError(f"--accelerator is one of {', '.join(ETHOS)}: a Vela file does not say")
    series = accelerator[: len("ethos-u55")]
    system = _section(config, "System_Config", asked.system)
    mode = _section(config, "Memory_Mode", asked.mode)
    area = {port: system.get(f"{port}_port", "Sram") for port in ("axi0", "axi1")}
    usual = {"const": "Axi1", "arena": "Axi0", "cache": "Axi0"}
    constants, arena, cache = (
        area[mode.get(f"{use}_mem_area", port).lower()].lower() for use, port in usual.items()
    )
    draft = Draft(_name(f"{accelerator}-{asked.system or ''}".strip("-"), accelerator))
    clock = float(system["core_clock"])
    draft.put("extends", f"{series}-like", "--accelerator")
    draft.put("clock", f"{clock / 1e6:g} MHz", "core_clock")
    for side, value in zip(("rows", "cols", "depth"), ETHOS[accelerator], strict=True):
        draft.put(f"matrix.{side}", value, accelerator)
    scale = float(system.get(f"{constants}_clock_scale", "1"))
    per_cycle = scale * PORT[series]
    draft.put("memories.dram.bandwidth", f"{per_cycle:g} B/cycle", f"{constants}_clock_scale")
    if latency := system.get(f"{constants}_read_latency"):
        draft.put("memories.dram.latency", f"{latency} cycles", f"{constants}_read_latency")
    if burst := system.get(f"{constants}_burst_length"):
        draft.put("memories.dram.burst", f"{burst} B", f"{constants}_burst_length")
    if cache != constants and (size := mode.get("arena_cache_size")):
        draft.put("memories.local.size", f"{size} B", "arena_cache_size")
    if arena != constants:
        why = f"feature maps that leave the chip go to {constants}, where the weights are"
        draft.leave(f"arena_mem_area = {arena}", why)
    for key in system:
        if key.endswith("write_latency") or (key.startswith("sram_") and cache != constants):
            draft.leave(f"{key} = {system[key]}", f"as {series}-like has it")
    return draft


def _section(config: configparser.ConfigParser, kind: str, name: str | None) -> dict[str, str]:
    """A section with what it inherits."""
    names = [s.split(".", 1)[1] for s in config.sections() if s.startswith(f"{kind}.")]
    if name is None and len(names) == 1:
        name = names[0]
    if name not in names:
        option = "--system" if kind == "System_Config" else "--mode"
        raise ValueError(f"{option} is one of {', '.join(names) or 'no section'}")
    values = dict(config[f"{kind}.{name}"])
    if parent := values.pop("inherit", None):
        values = _section(config, kind, parent.split(".", 1)[-1]) | values
    return values


def _name(text: str, stem: str) -> str:
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", str(text).strip(" \"'")).strip("-._")
    return word or stem


if __name__ == "__main__":
    main()
