"""Another tool's mapping of one layer that multiplies, as a schedule by hand: Timeloop's and
ZigZag's (YAML, and the loop nests that they print), and lines of DOSA.

The one idea: loops outside of the memories on the chip become loops over tiles, and loops in space
outside of a local memory cores; what has no place in a schedule is said, line by line. What lies
inside of a tile is the order of instructions, which is the compiler's. All mistakes of a mapping
are told at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import onnx
import yaml

from archgen.schema.tree import guess
from archgen.toolchain import Request, compile_options
from compiler import api
from simmodel.arch.record import Arch

# What a loop of another tool is in a network of one layer. Timeloop's P and R lie along the width.
GEMM = {"M": "m", "N": "n", "K": "k", "D0": "m", "D1": "n", "D2": "k"}
GEMM_AS_CONV = {"P": "m", "D": "m", "OX": "m", "M": "n", "K": "n", "C": "k"}
CONV = {
    "N": "n", "B": "n", "M": "o", "K": "o", "C": "c", "P": "w", "Q": "h", "R": "j", "S": "i",
    "OX": "w", "OY": "h", "FX": "j", "FY": "i",
}  # fmt: skip
SUMS = ("k", "c", "i", "j")
TENSORS = (
    "Inputs", "Weights", "Outputs", "Input", "Weight", "Output", "I", "W", "O", "A", "B", "Z", "C",
)  # fmt: skip
RESULTS = {"Outputs", "Output", "O", "Z", "C"}
TYPES = ("temporal", "spatial", "bypass", "datatype", "dataspace")
KEYS = ("target", "type", "factors", "permutation", "keep", "bypass")


@dataclass(frozen=True)
class MappingLoop:
    """One loop of a mapping."""

    dim: str
    count: int
    """Turns; 0: as many as are left."""
    spatial: bool = False


@dataclass
class MappingLevel:
    """Loops of a mapping outside of one memory's next inner one."""

    name: str
    loops: list[MappingLoop] = field(default_factory=list)
    """Outermost first."""
    keeps: frozenset[str] | None = None
    """Tensors that lie in it; None: the file does not say."""
    wrong: list[str] = field(default_factory=list)
    """Mistakes in what the file says of it, each with where."""


@dataclass
class MappedSchedule:
    """What a mapping becomes."""

    cores: list[str] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """What has no place in it."""


_LOOP_NEST = re.compile(r"^[|\s]*(par)?for \w+ in \[", re.MULTILINE)
_DOSA = re.compile(r"\s*L\d+\[\w*\]")
_YAML = re.compile(r"^[\s{\"'-]*(mapping|temporal_ordering)\W*:", re.MULTILINE)


def is_mapping(text: str) -> bool:
    """Whether a text is another tool's mapping rather than a schedule by hand."""
    return bool(_LOOP_NEST.search(text) or _DOSA.match(text) or _YAML.search(text))


def following(request: Request, proto: onnx.ModelProto, text: str) -> tuple[Request, Sequence[str]]:
    """`request` with the schedule in `text`, a tree or a mapping of the one layer of `proto` that
    multiplies, and what has no place in it. Raises api.TreeError with all mistakes."""
    left: Sequence[str] = ()
    if is_mapping(text):
        sizes, form = layer_of(request, proto)
        schedule = translated(read(text), sizes, request.arch)
        text, left = written(schedule, form), schedule.left
    return replace(request, scheduling=replace(request.scheduling, tree=api.parse_tree(text))), left


def layer_of(request: Request, proto: onnx.ModelProto) -> tuple[dict[str, int], str]:
    """Loops of the one layer of a network that multiplies, and the tree of its layers alone."""
    alone = replace(request.scheduling, fusion="none", effort=0, tree=None)
    options = compile_options(replace(request, scheduling=alone))
    nests, tree = (
        api.form_after(stage, proto, request.name, request.arch, options)
        for stage in ("join-concat", "fuse")
    )
    found = re.findall(r"^\S+\[(.*)\] = sum over (.*?) of mul\(", nests, re.MULTILINE)
    if len(found) != 1:
        said = f"{request.name} has {len(found)} layers that multiply; a mapping is of one"
        raise api.TreeError([said])
    loops = re.findall(r"(\w+)=(\d+)", ", ".join(found[0]))
    return {name: int(extent) for name, extent in loops}, tree


# Files to levels, outermost first.


def read(text: str) -> list[MappingLevel]:
    """Levels of a mapping, by the form that it has."""
    if _LOOP_NEST.search(text):
        return loop_nest(text)
    if _DOSA.match(text):
        return dosa(text)
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as why:
        raise api.TreeError(str(why).splitlines()) from None
    if isinstance(document, Mapping) and isinstance(document.get("mapping"), list):
        return timeloop(document["mapping"])
    entries = document if isinstance(document, list) else []
    for entry in entries:
        if isinstance(entry, Mapping) and "temporal_ordering" in entry:
            return zigzag(entry)
    known = "`mapping` of Timeloop, `temporal_ordering` of ZigZag, the loop nest of either"
    raise api.TreeError([f"neither {known} nor a line of DOSA"])


_OFF_CHIP = "DRAM|MAINMEMORY|OFFCHIP|HBM|DDR|LPDDR|GDDR"
"""Names of memories off chip."""


def timeloop(entries: Sequence[object]) -> list[MappingLevel]:
    """Levels of Timeloop's YAML, which is written in any order: the tool lists inner ones first,
    people outer ones; so the level that names no other inside of DRAM is the outermost."""
    levels: dict[str, MappingLevel] = {}
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            levels[f"{number}"] = MappingLevel(
                "", wrong=[f"entry {number}: {entry!r} is no mapping"]
            )
            continue
        where, kind = f"entry {number} ({entry.get('target')})", str(entry.get("type"))
        level = levels.setdefault(str(entry.get("target")), MappingLevel(str(entry.get("target"))))
        level.wrong += [f"{where}: no {key!r}" for key in ("target", "type") if key not in entry]
        near = ((key, guess(str(key), KEYS)) for key in entry if key not in KEYS)
        level.wrong += [f"{where}: unknown key {key!r}{hint}" for key, hint in near if hint]
        if "type" in entry and kind not in TYPES:
            hint = guess(kind, TYPES) or f"; expected one of {', '.join(TYPES)}"
            level.wrong.append(f"{where}: unknown type {kind!r}{hint}")
        if kind in TYPES[2:]:
            keep = entry.get("keep") or ()
            if isinstance(keep, str):
                level.wrong.append(f"{where}: keep {keep!r}: expected a list such as [{keep}]")
            level.keeps = frozenset(map(str, keep))
            level.wrong += [
                f"{where}: keep: no tensor {name!r}{guess(name, TENSORS)}; known are "
                f"{', '.join(TENSORS)}"
                for name in map(str, keep if isinstance(keep, list) else ())
                if name not in TENSORS
            ]
            continue
        factors = _factors(entry.get("factors") or "", where, level.wrong)
        order = _permutation(entry.get("permutation") or "")
        known = {*GEMM, *GEMM_AS_CONV, *CONV}
        for dim in dict.fromkeys(order):
            if dim not in known:
                level.wrong.append(
                    f"{where}: permutation: no loop {dim!r}{_likely_names(dim, known)}"
                )
            elif order.count(dim) > 1:
                level.wrong.append(f"{where}: permutation: {dim} stands there twice")
        order = [*dict.fromkeys([*order, *factors])]
        # A permutation names the innermost loop first; a spatial loop stands inside of the others.
        loops = [MappingLoop(d, factors[d], kind == "spatial")
                 for d in reversed(order) if factors.get(d, 1) != 1]  # fmt: skip
        level.loops = [*level.loops, *loops] if kind == "spatial" else [*loops, *level.loops]
    found = list(levels.values())
    outer = [each for each in found if re.match(_OFF_CHIP, each.name.upper().replace("_", ""))]
    if found and not outer:
        names = ", ".join(each.name for each in found)
        found[0].wrong.append(f"levels {names}: none is called DRAM, main_memory, off_chip or HBM, "
                              "so which is the outermost?")  # fmt: skip
    elif found and found[0] is not outer[0]:
        found.reverse()
    return found


def _likely_names(dim: str, known: Iterable[str]) -> str:
    names = sorted(known)
    return f"{guess(dim, names)}; known are {', '.join(names)}"


def _factors(said: object, where: str, wrong: list[str]) -> dict[str, int]:
    """`C=16 K=6,2` and `C16 K6`: the second number is the turns of the last time."""
    words: list[object] = said if isinstance(said, list) else [*str(said).split()]
    found: dict[str, int] = {}
    for word in words:
        match = re.fullmatch(r"([A-Za-z]+\d*?)=?(\d+)(,\d+)?", str(word).replace("<=", "="))
        if match is None:
            wrong.append(f"{where}: factor {word!r}: expected such as C=16")
        elif match[1] in found:
            wrong.append(f"{where}: two factors of {match[1]}")
        else:
            found[match[1]] = int(match[2])
    return found


def _permutation(said: object) -> list[str]:
    if isinstance(said, list):
        return [str(dim) for dim in said]
    text = str(said)
    return re.split(r"[,\s]+", text.strip()) if re.search(r"[,\s]", text.strip()) else list(text)


def loop_nest(text: str) -> list[MappingLevel]:
    """Levels of a printed loop nest: Timeloop's, with headings, or ZigZag's, with memories at the
    end of each line."""
    levels: list[MappingLevel] = []
    unread: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        heading = re.match(r"(\w+) \[(.*)\]\s*$", line)
        loop = re.match(r"[|\s]*(par)?for (\w+) in \[(\d+)[:,]\s*(\d+)\)?\)?:?(.*)", line)
        if heading:
            keeps = frozenset(re.findall(r"(\w+):", heading[2]))
            levels.append(MappingLevel(heading[1], keeps=keeps))
        elif loop:
            rest = loop[5].strip().rstrip(":")
            memories = [] if rest.startswith("(") else rest.split()
            if memories and (not levels or levels[-1].name != " ".join(memories)):
                levels.append(MappingLevel(" ".join(memories)))
            spatial = bool(loop[1]) or "Spatial" in rest
            if loop[1] and (not levels or levels[-1].name != "array"):
                levels.append(MappingLevel("array"))
            if not levels:
                levels.append(MappingLevel("outside"))
            levels[-1].loops.append(MappingLoop(loop[2], int(loop[4]) - int(loop[3]), spatial))
        elif re.match(r"[|\s]*(par)?for\b", line):
            unread.append(f"line {number}: {line.strip()!r}: expected such as for K in [0:16)")
    return [*levels, MappingLevel("", wrong=unread)] if unread else levels


def dosa(text: str) -> list[MappingLevel]:
    """Levels of DOSA's line, `L3[WIO] C8 Q7 - L2[WI] Q2 - L1[O] P7 K2X`, outermost first."""
    names = {"W": "Weights", "I": "Inputs", "O": "Outputs"}
    levels = []
    for part in text.strip().split(" - "):
        name, *words = part.split() or [""]
        head = re.fullmatch(r"\w+\[([WIO]*)\]", name)
        level = (
            MappingLevel(name, keeps=frozenset(names[letter] for letter in head[1] if head))
            if head
            else MappingLevel(name, wrong=[f"{name!r}: expected such as L2[WI]"])
        )
        for word in words:
            match = re.fullmatch(r"([A-Z]+)(\d+)([XY]?)", word)
            if match is None:
                level.wrong.append(f"{name}: {word!r}: expected such as C8 or K2X")
            else:
                level.loops.append(MappingLoop(match[1], int(match[2]), bool(match[3])))
        levels.append(level)
    return levels


def zigzag(entry: Mapping[str, Any]) -> list[MappingLevel]:
    """Levels of ZigZag's YAML, which leaves it to the tool what lies in which memory."""
    wrong: list[str] = []
    spread = entry.get("spatial_mapping") or {}
    if not isinstance(spread, Mapping):
        wrong.append(f"spatial_mapping: {spread!r}: expected such as {{D1: ['K, 16']}}")
        spread = {}
    pairs = {"temporal_ordering": entry["temporal_ordering"]}
    pairs |= {f"spatial_mapping.{axis}": own for axis, own in spread.items()}
    found = {where: [*_pairs(own, where, wrong)] for where, own in pairs.items()}
    temporal = [MappingLoop(*pair) for pair in reversed(found.pop("temporal_ordering"))]
    spatial = [MappingLoop(*pair, spatial=True) for own in found.values() for pair in own]
    return [MappingLevel("", temporal, wrong=wrong), MappingLevel("array", spatial)]


def _pairs(said: object, where: str, wrong: list[str]) -> Iterator[tuple[str, int]]:
    """`[K, 16]`, `"K, 16"`, and `[K, "*"]`: as many turns as are left, here 0."""
    for one in said if isinstance(said, list) else [said]:
        parts = (
            [str(each) for each in (re.split(r"[,\s]+", one) if isinstance(one, str) else one)]
            if isinstance(one, str | list)
            else []
        )
        if len(parts) == 2 and re.fullmatch(r"\d+|\*", parts[1]):
            yield parts[0], 0 if parts[1] == "*" else int(parts[1])
        else:
            wrong.append(f"{where}: {one!r}: expected such as [K, 16]")


# Levels to a schedule.


def translated(
    levels: Sequence[MappingLevel], sizes: Mapping[str, int], arch: Arch
) -> MappedSchedule:
    """The schedule of a mapping of loops of `sizes` on a machine.

    Raises api.TreeError with all mistakes of the mapping, and where it is of another layer.
    """
    found = MappedSchedule()
    wrong = [mistake for level in levels for mistake in level.wrong]
    if not (wrong or any(level.loops for level in levels)):
        raise api.TreeError(["the mapping has no loops"])
    levels = _renamed_loops(levels, sizes, wrong)
    turns = [loop for level in levels for loop in level.loops]
    # What was not read may be what is missing; that factors are too many is known all the same.
    unread = bool(wrong)
    for dim, extent in sizes.items():
        counts = [loop.count for loop in turns if loop.dim == dim]
        covered, factors = math.prod(counts), " x ".join(map(str, counts))
        idle = counts and covered - covered // counts[0] >= extent  # the last of the outer turns
        if covered < extent and not unread:
            wrong.append(f"the mapping covers {covered} of the {extent} positions of {dim}")
        elif idle:
            wrong.append(
                f"{dim}: factors {factors} are {covered} positions, the layer has {extent}"
            )
        elif covered > extent:
            found.left.append(f"{dim}: {factors} turns for {extent} positions: the last is shorter")
    if wrong:
        raise api.TreeError(dict.fromkeys(wrong))
    inside = _first_inside(levels, sizes, arch, found)
    chip = 2 if "shared" in arch.memories.on_chip() else 1  # levels outside of local memories
    split = [loop for level in levels[:chip] for loop in level.loops if loop.spatial]
    outer = [loop for level in levels[:inside] for loop in level.loops if not loop.spatial]
    _cores(split, sizes, arch, found)
    tiled = _sums_in_one_place(outer, turns, sizes, split, arch, found)
    _tiles(tiled, turns, sizes, split, found)
    _rest(levels[inside:], levels[chip:], arch, found)
    return found


def _renamed_loops(
    levels: Sequence[MappingLevel], sizes: Mapping[str, int], wrong: list[str]
) -> list[MappingLevel]:
    """Levels with loops of the network, those of no loop of it to `wrong`; `*` is what the others
    leave."""
    used = {loop.dim for level in levels for loop in level.loops}
    table = CONV if "o" in sizes else GEMM_AS_CONV if used & {"P", "C", "OX", "D"} else GEMM
    moving = {loop.dim for level in levels for loop in level.loops if loop.count != 1}
    names = {dim for dim in table if table[dim] in sizes}
    wrong += [
        f"loops over {dim}: the layer has none{_likely_names(dim, names)}"
        for dim in sorted(moving - names)
    ]
    loops = [loop for level in levels for loop in level.loops]
    count = {d: math.prod(e.count for e in loops if e.count and e.dim == d) for d in moving}

    def renamed(loop: MappingLoop) -> MappingLoop:
        dim = table[loop.dim]
        return MappingLoop(dim, loop.count or -(-sizes[dim] // count[loop.dim]), loop.spatial)

    return [
        MappingLevel(
            level.name,
            [renamed(e) for e in level.loops if e.count != 1 and e.dim in names],
            level.keeps,
        )
        for level in levels
    ]


def _first_inside(
    levels: list[MappingLevel], sizes: Mapping[str, int], arch: Arch, found: MappedSchedule
) -> int:
    """Position of the first level whose loops lie inside of a tile.

    A tile lies in local memory and its result in the accumulators, if there are such: of a memory
    that keeps results alone, the loops outside are loops over tiles, too.
    """
    if not levels[0].name:
        return _fitting(levels, sizes, arch, found)
    if all(level.keeps is None for level in levels):  # as ZigZag prints it: one of each tensor
        names = [name for level in levels for name in level.name.split()]
        outer = next((name for name in names if "dram" in name.lower()), names[0])
        return next((n for n, lv in enumerate(levels) if outer not in lv.name.split()), len(levels))
    if arch.memories.accumulators is not None:
        for at, level in enumerate(levels[2:], 2):
            if level.keeps and len(level.keeps) == 1 and level.keeps <= RESULTS:
                return at
            if any(loop.spatial for loop in level.loops):
                break
    return 1


def _fitting(
    levels: list[MappingLevel], sizes: Mapping[str, int], arch: Arch, found: MappedSchedule
) -> int:
    """Part the loops of a mapping without memories where two tiles still fit; returns where."""
    loops, array = levels[0].loops, levels[1].loops
    for cut in range(len(loops) + 1):
        if _fits([*loops[cut:], *array], sizes, arch):
            break
    found.left.append("what lies in which memory is not said: the largest tile that fits is taken")
    levels[:1] = [MappingLevel("outside", loops[:cut]), MappingLevel("inside", loops[cut:])]
    return 1


def _fits(inner: Sequence[MappingLoop], sizes: Mapping[str, int], arch: Arch) -> bool:
    """Whether a tile with these loops inside fits: two of its operands, and its sums."""
    local, sums = arch.memories.local.size, arch.memories.accumulators
    tile = {d: min(n, math.prod(e.count for e in inner if e.dim == d)) for d, n in sizes.items()}
    rows = tile.get("m") or tile["h"] * tile["w"]
    columns, depth = tile.get("o") or tile["n"], math.prod(tile.get(d, 1) for d in SUMS)
    need = 2 * (rows * depth + columns * depth) + (0 if sums else 4 * rows * columns)
    return need <= local and (sums is None or 4 * rows * columns <= sums.size)


def _cores(
    split: Sequence[MappingLoop], sizes: Mapping[str, int], arch: Arch, found: MappedSchedule
) -> None:
    """Parts of the cores, as loops in space outside of their memories say."""
    counts: dict[str, int] = {}
    for loop in split:
        counts[loop.dim] = counts.get(loop.dim, 1) * loop.count
    for dim in [d for d in counts if d in SUMS]:
        found.left.append(
            f"{counts.pop(dim)} cores share the sum over {dim}: cores share results only"
        )
    if math.prod(counts.values()) > arch.core_count:
        there = f"where {arch.name} has {arch.core_count}: one core does all of it"
        found.left.append(f"{math.prod(counts.values())} cores, {there}")
        counts = {}
    steps = {dim: -(-sizes[dim] // count) for dim, count in counts.items()}
    spans = [
        [f"{dim} = {at}:{min(at + step, sizes[dim])}" for at in range(0, sizes[dim], step)]
        for dim, step in steps.items()
    ]
    found.cores = [", ".join(part) for part in product(*spans)]


def _sums_in_one_place(
    outer: Sequence[MappingLoop], turns: Sequence[MappingLoop], sizes: Mapping[str, int],
    split: Sequence[MappingLoop], arch: Arch, found: MappedSchedule,
) -> Sequence[MappingLoop]:  # fmt: skip
    """Loops over tiles without those over results inside of a sum: these are one tile where its
    sums fit, else the sum becomes the innermost loop, as sums that are not complete stay."""
    first = next((at for at, loop in enumerate(outer) if loop.dim in SUMS), len(outer))
    inner = {loop.dim for loop in outer[first:]} - {*SUMS}
    if not inner:
        return outer
    whole = [loop for at, loop in enumerate(outer) if at < first or loop.dim in SUMS]
    tile = [MappingLoop(d, _turns(turns, d) // _turns([*whole, *split], d)) for d in sizes]
    names = f"{', '.join(sorted(inner))} inside of the sum over {outer[first].dim}"
    if _fits(tile, sizes, arch):
        found.left.append(f"the loops over {names} are one tile, whose sums stay where they are")
        return whole
    found.left.append(f"the loops over {names} stand outside of it: their sums do not fit at once")
    sums = [loop for loop in outer if loop.dim in SUMS]
    return [*(loop for loop in outer if loop.dim not in SUMS), *sums]


def _turns(loops: Iterable[MappingLoop], dim: str) -> int:
    """All turns over one dimension."""
    return math.prod(loop.count for loop in loops if loop.dim == dim)


def _tiles(
    outer: Sequence[MappingLoop], turns: Sequence[MappingLoop], sizes: Mapping[str, int],
    split: Sequence[MappingLoop], found: MappedSchedule,
) -> None:  # fmt: skip
    """Loops over tiles: one of each dimension."""
    order: list[str] = []
    for loop in outer:
        if loop.dim in order and order[-1] != loop.dim:
            found.left.append(f"the loops over {loop.dim} are one, where the inner one stands")
        order = [*(dim for dim in order if dim != loop.dim), loop.dim]
    for dim in order:
        inside = _turns(turns, dim) // _turns([*outer, *split], dim)
        if dim == "j":
            found.left.append("the sum over the columns of a kernel is in one piece")
        elif inside < sizes[dim]:
            found.loops.append(f"{dim} {inside}")


def _rest(
    inside: Sequence[MappingLevel], array: Sequence[MappingLevel], arch: Arch, found: MappedSchedule
) -> None:
    """Say what lies inside of a tile, and what the array is taken to be."""
    for level in inside:
        temporal = ", ".join(f"{e.dim} {e.count}" for e in level.loops if not e.spatial)
        if temporal:
            why = "the order of instructions in a tile is the compiler's"
            found.left.append(f"{level.name}: for {temporal}: {why}")
    spatial = [loop for level in array for loop in level.loops if loop.spatial]
    macs, here = math.prod(loop.count for loop in spatial), arch.peak_macs(arch.types[0])
    if macs != here // arch.core_count:
        mesh = " x ".join(f"{loop.dim} {loop.count}" for loop in spatial) or "one product"
        found.left.append(f"{mesh} at once, where a core multiplies {here // arch.core_count:g}")


def written(schedule: MappedSchedule, form: str) -> str:
    """The schedule's text: layers as the compiler forms them, with what the mapping says of one."""
    lines: list[str] = []
    for line in form.splitlines():
        text, _, remark = line.partition("#")
        if re.search("Conv|MatMul|Gemm", remark) and text.strip().startswith("layer"):
            lines += [f"  core {part}".rstrip() for part in schedule.cores]
            loops = "; ".join(f"for {loop}" for loop in schedule.loops)
            text = f"{text.rstrip()}: {loops}" if loops else text
        lines.append(text.rstrip())
    return "\n".join([*lines, *(f"# not translated: {said}" for said in schedule.left)]) + "\n"
