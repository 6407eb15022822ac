"""Rules between the fields of an architecture: what each field alone cannot know.

Each rule is a small generator of problems. A problem names the field that it is about first, and
the other fields that it rests on, so that a reader with broken fields elsewhere can tell what still
holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import import_module
from itertools import product

from simmodel.arch.assumed import assumption_problems
from simmodel.arch.base import OFF_CHIP, Path, Problem, near
from simmodel.arch.element_types import COMPRESSED, WINOGRAD, accumulator_of, per_block
from simmodel.arch.record import Arch, Matrix
from simmodel.arch.units import exact_bytes, show_bytes

_MEMORIES: Path = ("memories",)
_COPY: Path = ("copy",)
_READS: Path = ("vector", "reads")


def problems(arch: Arch) -> list[Problem]:
    """All contradictions in `arch`; empty if it is a valid machine."""
    rules = (
        _banks, _array_problems, _winograd, _rates, _vector_types, _engine_names, _roles,
        _operands, _results, _idle_memories, _read_only, _no_dram, _networks, _instructions,
        _energies, _areas, _yield, assumption_problems,
    )  # fmt: skip
    return [problem for rule in rules for problem in rule(arch)]


def _instructions(arch: Arch) -> Iterator[Problem]:
    """Contradictions of `isa`, `engines` and `encoding`, where the file has them."""
    if arch.isa.without or arch.isa.limits or arch.engines_ or arch.encoding is not None:
        found = import_module("simmodel.program.instruction_rules")  # slow: with numpy
        yield from found.instruction_problems(arch)


def _banks(arch: Arch) -> Iterator[Problem]:
    for role, memory in arch.memories.on_chip().items():
        at: Path = ("memories", role)
        size = (*at, "size")
        if memory.size % memory.banks:
            message = f"{memory.banks} banks do not divide {exact_bytes(memory.size)} evenly"
            yield Problem((*at, "banks"), message, (size,))
        elif memory.bank_size % memory.bank_width:
            message = (
                f"{memory.bank_width} bytes do not divide a bank of {memory.bank_size} bytes"
                f" (banks: {memory.banks}, size: {show_bytes(memory.size)})"
            )
            yield Problem((*at, "bank_width"), message, (size, (*at, "banks")))
        if memory.size % memory.alignment:
            message = f"{memory.alignment} bytes do not divide the size of {memory.size} bytes"
            yield Problem((*at, "alignment"), message, (size,))
        pair = ("read_ports", "write_ports")
        for given, other in (pair, pair[::-1]):
            if getattr(memory, given) is not None and getattr(memory, other) is None:
                message = f"{given} without {other}; give both, or ports for shared ones"
                yield Problem((*at, given), message, ((*at, other),))
        if memory.split_ports and "ports" in memory.model_fields_set:
            message = "ports are shared by reads and writes, beside read_ports and write_ports"
            yield Problem((*at, "ports"), message)


def _arrays(arch: Arch) -> list[tuple[Path, Matrix]]:
    beside = [(("engines", n), each) for n, each in arch.arrays.items() if n != "matrix"]
    return [(("matrix",), arch.matrix), *beside]


def _array_problems(arch: Arch) -> Iterator[Problem]:
    for at, array in _arrays(arch):
        kind = ((*at, "kind"),)
        if array.kind == "systolic" and array.depth > 1:
            message = "only a cube has a depth; a systolic array has rows and cols"
            yield Problem((*at, "depth"), message, kind)
        if array.kind == "cube" and array.dataflow != "weight-stationary":
            message = "only a systolic array has a dataflow"
            yield Problem((*at, "dataflow"), message, kind)
        for weights, base in COMPRESSED.items():
            rate, plain = array.peak(weights), array.peak(base)
            if rate and not rate >= plain > 0:
                message = f"{weights} weights are multiplied at least as fast as others of {base}"
                yield Problem((*at, "rate", weights), message)
        if at[0] == "engines" and not array.present:
            yield Problem((*at, "rate"), "an array beside `matrix` multiplies some type")
        if at[0] == "engines" and not arch.matrix.present:
            yield Problem(at, "the first array of a core is `matrix`; others are beside it")


def _winograd(arch: Arch) -> Iterator[Problem]:
    for at, array in _arrays(arch):
        if array.winograd is None:
            continue
        if array.kind != "cube" or array.granularity != "conv":
            message = "Winograd takes a cube with convolutions (granularity: conv)"
            yield Problem((*at, "winograd"), message, ((*at, "kind"), (*at, "granularity")))
        if not any(array.peak(name) for name in WINOGRAD):
            message = f"Winograd multiplies int8 and int16 alone; {at[-1]}.rate has neither"
            yield Problem((*at, "winograd"), message, ((*at, "rate"),))


def _rates(arch: Arch) -> Iterator[Problem]:
    for index, name in enumerate(arch.types):
        if arch.types.index(name) < index:
            yield Problem(("types", index), f"{name!r} stands here twice")
        elif arch.matrix.present and arch.matrix.peak(name) == 0:
            known = ", ".join(arch.matrix.rate)
            message = f"the matrix engine has no rate for {name!r}; matrix.rate has {known}"
            yield Problem(("types", index), message, (("matrix", "rate"),))
    for at, array in _arrays(arch):
        for kind in array.rate:
            if per_block(kind) > 1 and not arch.vector.has(kind):
                message = f"no engine makes blocks of {kind} of activations; vector.types needs it"
                yield Problem((*at, "rate", kind), message, (("vector", "types"),))


def _vector_types(arch: Arch) -> Iterator[Problem]:
    at: Path = ("vector", "types")
    for name in arch.types:
        if name not in arch.vector.types:
            message = f"networks of {name!r} need it here (or drop it from arch.types)"
            yield Problem(at, message, (("types",),))
    if "accumulators" in arch.vector.reads:
        sums = {accumulator_of(name) for name in arch.types}
        for held in sorted(sums - set(arch.vector.types)):
            message = f"the accumulators that vector.reads names hold {held!r}, which is not here"
            yield Problem(at, message, (("types",), _READS))


def _engine_names(arch: Arch) -> Iterator[Problem]:
    """Queues of engines that do not exist, engines with the name of another, and copy engines that
    name no memory of another core."""
    engines, depth = arch.engines(), arch.front_end.queue_depth
    for name in depth if isinstance(depth, dict) else ():
        if name not in engines:
            message = f"no engine is called {name!r}; engines: {', '.join(engines)}"
            at = ("front_end", "queue_depth", name)
            yield Problem(at, message + near(name, engines), (_COPY,))
    taken = ["matrix", "scalar", "host", *arch.units("matrix"), *arch.units("vector")]
    own: list[Path] = []
    for section, names in (("engines", arch.engines_), ("copy", arch.copy_)):
        for name in names:
            units = arch.units(name) if section == "engines" else (name,)
            own += [(section, name)] if {*units} & {*taken} else []
            taken += units
    for path in own:
        yield Problem(path, f"{path[1]!r} is the name of another engine; pick a new one")
    for name, engine in arch.copy_.items():
        if engine.peer and "local" not in (*engine.from_, *engine.to):
            message = "peer reaches other cores' local memory; expected 'local' in from or to"
            ends = (("copy", name, "from"), ("copy", name, "to"))
            yield Problem(("copy", name, "peer"), message, ends)


def _role_references(arch: Arch) -> Iterator[tuple[Path, str]]:
    """Every place that names a memory role, and the role."""
    for at, array in _arrays(arch):
        yield from (((*at, key), getattr(array, key)) for key in ("input", "weights", "output"))
    lists: list[tuple[Path, tuple[str, ...]]] = [
        (_READS, arch.vector.reads), (("vector", "writes"), arch.vector.writes)
    ]  # fmt: skip
    for name, beside in arch.function_engines.items():
        lists += [(("engines", name, "reads"), beside.reads)]
        lists += [(("engines", name, "writes"), beside.writes)]
    for name, engine in arch.copy_.items():
        lists += [(("copy", name, "from"), engine.from_), (("copy", name, "to"), engine.to)]
    for name, link in arch.links.items():
        lists += [(("links", name, "from"), link.from_), (("links", name, "to"), link.to)]
    for at, roles in lists:
        for index, role in enumerate(roles):
            yield (*at, index), role


def _roles(arch: Arch) -> Iterator[Problem]:
    """Names of memories that do not exist, and engines that compute on DRAM."""
    have = arch.memories.roles()
    far = {
        role: f"engines compute on on-chip memories; a copy engine brings data from {role!r}"
        for role in OFF_CHIP
    } | {"shared": "engines compute on memories of their core; 'shared' lies between the cores"}
    for at, role in _role_references(arch):
        if role not in have:
            yield _no_memory(arch, at, role)
        elif at[0] in ("matrix", "vector", "engines") and role in far:
            yield Problem(at, far[role])


def _no_memory(arch: Arch, at: Path, role: str) -> Problem:
    message = f"the machine has no memory {role!r}; memories: {', '.join(arch.memories.roles())}"
    if role == "shared" and arch.memories.dram.on_chip:
        message = "'shared' is in the place of DRAM, which copy engines and links reach alone"
    return Problem(at, message, (("memories", role),))


def _copies(arch: Arch) -> set[tuple[str, str]]:
    """Every path from one role to another that a copy engine has."""
    engines = arch.copy_.values()
    return {(source, target) for each in engines for source in each.from_ for target in each.to}


def _moves(arch: Arch) -> set[tuple[str, str]]:
    """Every path from one role to another: copies, and engines that read one and write the
    other."""
    computed = {(read, write) for read in arch.vector.reads for write in arch.vector.writes}
    for _, array in _arrays(arch):
        computed |= {(array.input, array.output)}
        computed |= {(array.output, "local")} if array.writeback else set()
    return computed | _copies(arch)


def _reachable_memories(start: str, moves: set[tuple[str, str]]) -> set[str]:
    found = {start}
    while more := {target for source, target in moves if source in found} - found:
        found |= more
    return found


def _operands(arch: Arch) -> Iterator[Problem]:
    """Every memory that an engine reads must be reachable from DRAM, and from where constants
    are."""
    on_chip, about = arch.memories.on_chip(), (_COPY, _MEMORIES, ("matrix",), ("vector",))
    far = arch.memories.off_chip()
    # Weights and inputs have no other path.
    copied = {start: _reachable_memories(start, _copies(arch)) for start in far}
    for (at, array), (key, starts) in product(
        _arrays(arch), (("input", ("dram",)), ("weights", tuple(far)))
    ):
        role = getattr(array, key)
        for start in starts if role in on_chip else ():
            if role not in copied[start]:
                message = f"no copy engine brings data from {start!r} to {role!r}"
                yield Problem((*at, key), message, (_COPY, ("memories", role)))
    if "flash" in far and "local" not in (arch.matrix.weights, *copied["flash"]):
        message = "no copy engine brings constants from 'flash' to 'local'"
        yield Problem(("memories", "flash"), message, (_COPY,))
    lacking = on_chip.keys() - set().union(
        *(_reachable_memories(start, _moves(arch)) for start in far)
    )
    for index, role in enumerate(arch.vector.reads):
        if role in lacking:
            yield Problem((*_READS, index), f"nothing brings data to {role!r}", about)
    for name, engine in arch.copy_.items():
        for index, role in enumerate(engine.from_):
            if role in lacking:
                yield Problem(("copy", name, "from", index), f"nothing fills {role!r}", about)


def _results(arch: Arch) -> Iterator[Problem]:
    """Every memory that an engine writes must have a path to DRAM."""
    copied = any("accumulators" in engine.from_ for engine in arch.copy_.values())
    read_out = copied or "accumulators" in arch.vector.reads
    written: list[tuple[Path, str]] = []
    unread: list[Path] = []
    for at, array in _arrays(arch):
        if array.output == "accumulators" and not (read_out or array.writeback):
            unread.append(at)
        else:
            written.append(((*at, "output"), array.output))
    written += [(("vector", "writes", i), role) for i, role in enumerate(arch.vector.writes)]
    for at, role in written:
        if role in arch.memories.on_chip() and "dram" not in _reachable_memories(
            role, _moves(arch)
        ):
            message = f"results in {role!r} cannot be stored: no copy engines take them to 'dram'"
            yield Problem(at, message, (_COPY, _MEMORIES, ("vector",), ("matrix",)))
    for at in unread:
        message = (
            "nothing reads the accumulators: expected 'accumulators' in vector.reads, "
            f"or a {'.'.join(map(str, at))}.writeback"
        )
        yield Problem((*at, "output"), message, (_READS, (*at, "writeback"), _COPY))


def _read_only(arch: Arch) -> Iterator[Problem]:
    """Paths that lead to flash."""
    for at, role in _role_references(arch):
        if role == "flash" and at[2:3] == ("to",):
            yield Problem(at, "a run only reads 'flash': what is stored goes to 'dram'")


def _no_dram(arch: Arch) -> Iterator[Problem]:
    """Of a chip without DRAM the link over which inputs come, and that all lies in one memory."""
    memories = arch.memories
    if memories.dram.on_chip and (memories.shared or memories.flash):
        message = (
            "it is alone: where a chip has no DRAM, neither has it flash or more shared memory"
        )
        yield Problem(("memories", "dram", "on_chip"), message, (("memories",),))
    if memories.dram.on_chip and "bandwidth" not in arch.host.model_fields_set:
        message = "expected: without DRAM inputs and outputs go from and to the host"
        yield Problem(("host", "bandwidth"), message, (("memories", "dram"),))
    if memories.dram.on_chip and memories.dram.kind is not None:
        message = "that is memory off chip; expected none where memories.dram.on_chip"
        yield Problem(("memories", "dram", "kind"), message, (("memories", "dram"),))


def _networks(arch: Arch) -> Iterator[Problem]:
    """Links between neighbouring cores whose places do not fit the machine, and buses with some."""
    for name, link in arch.links.items():
        at, kind = ("links", name), link.topology
        why, shape, ports = ((*at, "topology"),), (*at, "shape"), (*at, "ports")
        if kind in ("bus", "ring") and link.shape:
            yield Problem(shape, f"a {kind} has no shape; mesh and torus have", why)
        elif kind in ("mesh", "torus") and math.prod(link.shape or (0,)) != arch.core_count:
            message = f"expected numbers whose product is {arch.core_count}, all cores"
            if not link.shape:
                shape = (*at, "topology")
                message = f"missing shape: cores of the {kind} along each dimension; {message}"
            yield Problem(shape, message, (*why, ("cores",), (*at, "shape")))
        if kind != "bus" and link.scope != "chip":
            message = f"a {kind} has links between neighbouring cores; scope is for a bus"
            yield Problem((*at, "scope"), message, why)
        joining = {*link.from_, *link.to} & {*OFF_CHIP, "shared"} if kind != "bus" else set()
        if joining and not link.ports:
            message = f"ports: cores at which {' and '.join(sorted(joining))} joins the {kind}"
            yield Problem((*at, "topology"), f"missing {message}", (*why, ports))
        elif link.ports and not joining:
            message = "nothing joins here: expected a mesh, torus or ring from or to dram or shared"
            yield Problem(ports, message, why)
        for index, port in enumerate(link.ports):
            if port >= arch.core_count:
                message = f"the machine has no core {port}, only 0 to {arch.core_count - 1}"
                yield Problem((*ports, index), message, (("cores",),))
        shared = arch.memories.shared
        if "shared" in joining and shared is not None and shared.level == "cluster":
            message = f"shared memory of a cluster does not join a {kind}; expected level: chip"
            yield Problem((*at, "topology"), message, (("memories", "shared", "level"),))


def _idle_memories(arch: Arch) -> Iterator[Problem]:
    """On-chip memories that no engine uses."""
    used = {role for at, role in _role_references(arch) if at[0] != "links"}
    for role in arch.memories.on_chip():
        if role not in used:
            message = "no engine reads or writes this memory; name it in copy, or leave it out"
            yield Problem(("memories", role), message, (_COPY, ("matrix",), ("vector",)))


def _energies(arch: Arch) -> Iterator[Problem]:
    """Energies of parts that the machine does not have."""
    given, have = arch.energy, {*arch.memories.roles(), *arch.memories.srams()}
    for role in given.memories:
        if role not in have:
            yield _no_memory(arch, ("energy", "memories", role), role)
    for name in given.links:
        if name not in arch.links:
            links = ", ".join(arch.links) or "none"
            message = f"no link is called {name!r}; links: {links}{near(name, arch.links)}"
            yield Problem(("energy", "links", name), message, (("links",),))
    for name in given.mac:
        if arch.matrix.present and not any(each.peak(name) for each in arch.arrays.values()):
            known_types = ", ".join(arch.matrix.rate)
            message = f"the matrix engine has no {name!r}; matrix.rate has {known_types}"
            yield Problem(("energy", "mac", name), message, (("matrix", "rate"),))


def _yield(arch: Arch) -> Iterator[Problem]:
    """A yield that is stated beside what it would follow from."""
    price = arch.price
    if price is None or price.yield_ is None:
        return
    for name in ("defects", "clustering"):
        if getattr(price, name) is not None:
            at: Path = ("price", name)
            yield Problem(at, "arch.price.yield states what follows from it", (("price", "yield"),))


def _areas(arch: Arch) -> Iterator[Problem]:
    """Areas of parts that the machine does not have, and areas that are stated twice."""
    whole, all_terms = area_parts(arch), tuple(area_terms(arch))
    given = arch.energy.area.parts
    for name in given:
        at: Path = ("energy", "area", "parts", name)
        part = name.partition(" ")[0]
        if name not in (*whole, *all_terms):
            yield Problem(at, f"the machine has no part {name!r}{_part_meant(arch, name)}")
        elif part in given and name != part:
            yield Problem(at, f"{name!r} is in {part!r}, which is stated as a whole")
        elif field := _own_area_field(arch, name):
            yield Problem(at, f"arch.{'.'.join(field)} states it as well", (field,))
    for name in arch.energy.area.extra:
        if name in (*whole, *all_terms):
            message = f"{name!r} is a part of the machine: it belongs under parts"
            yield Problem(("energy", "area", "extra", name), message)


def _part_meant(arch: Arch, name: str) -> str:
    """The part of an area that is stated for a part which cannot be stated as a whole."""
    if name in arch.memories.roles():
        return f"; a memory's is arch.energy.memories.{name}.area"
    if name == "other":
        return "; it is arch.energy.area.other"
    known = (*area_parts(arch), *area_terms(arch))
    return near(name, known) or f"; parts: {', '.join(area_parts(arch))}; own terms go under extra"


# Names of area terms. A file may state an area under its name, so these follow from the file alone:
# `archgen explain area` prints a term `queues` of the part `front_end`, and a file states
# `front_end queues: 0.02 mm2`.


def area_parts(arch: Arch) -> list[str]:
    """Parts whose area may be stated as a whole; others have fields of their own."""
    there = {
        "mac": arch.matrix.present, "vector": True, "scalar": True, "copy": bool(arch.copy_),
        "link": bool(arch.links), "front_end": True,
    }  # fmt: skip
    return [part for part, known in there.items() if known]


def area_terms(arch: Arch) -> Iterator[str]:
    """Every term, after the name of its part."""
    vector, front_end = arch.vector, arch.front_end
    lanes, far = arch.energy.area.lane is None, not arch.memories.dram.on_chip
    own = arch.energy.has_pads and far
    narrow = (vector.wide_lanes or vector.lanes) < vector.lanes
    there = {
        "mac cells": arch.matrix.present,
        "vector lanes": True, "vector narrow lanes": narrow and lanes, "vector converters": lanes,
        "vector sums": vector.product_rows, "vector addresses": True,
        "scalar bookkeeping": True, "scalar arithmetic": arch.scalar.types,
        "front_end issue": True, "front_end fetch": True, "front_end queues": True,
        f"front_end {front_end.sync}": True,
        "front_end loop buffer": front_end.loop_buffer is not None,
        "dram PHY": own, "dram controllers": own, "dram port": not own and far,
        "dram bursts": far,
        **dict.fromkeys(("dram flash port", "dram flash bursts"), arch.memories.flash is not None),
    }  # fmt: skip
    for name, engine in arch.function_engines.items():
        there |= dict.fromkeys(
            (f"vector {name} {term}" for term in ("lanes", "converters", "addresses")), True
        )
        there[f"vector {name} narrow lanes"] = (engine.wide_lanes or engine.lanes) < engine.lanes
    yield from (name for name, known in there.items() if known)
    for array, each in arch.arrays.items():
        own_name = "" if array == "matrix" else f"{array} "
        yield from (f"mac {own_name}cells",) if own_name else ()
        yield from (f"mac {own_name}write-back {name}" for name in each.writeback)
    for role, memory in arch.memories.srams().items():
        aligned = ("aligners",) if memory.alignment < memory.bank_width else ()
        yield from (f"{role} {name}" for name in ("banks", "switch", *aligned))
    for name in arch.copy_:
        yield from (f"copy {name} {term}" for term in ("requests", "data", "buffer", "addresses"))
    yield from (f"link {name}" for name in arch.links)


def _own_area_field(arch: Arch, name: str) -> tuple[str, ...] | None:
    """The field that states this part or term instead, if the file has it."""
    part, energy = name.partition(" ")[0], arch.energy
    if energy.memory(part).area is not None:
        return ("energy", "memories", part, "area")
    if part == "mac" and name.endswith(("mac", " cells")) and energy.area.mac is not None:
        return ("energy", "area", "mac")
    if name in ("vector", "vector lanes", "vector narrow lanes") and energy.area.lane is not None:
        return ("energy", "area", "lane")
    return None
