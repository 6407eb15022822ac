"""Rules between the fields of an architecture: what each field alone cannot know.

Each rule is a small generator of problems. A problem names the field that it is about first, and
the other fields that it rests on, so that a reader with broken fields elsewhere can tell what still
holds.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

from simmodel.arch.area_terms import own_field, parts, terms
from simmodel.arch.base import Path, Problem, near
from simmodel.arch.dtype import accumulator_of
from simmodel.arch.record import Arch, Memory
from simmodel.arch.units import exact_bytes, show_bytes
from simmodel.isa.forms import NEEDED, forms
from simmodel.program.encoding_rules import encoding_problems

_MEMORIES: Path = ("memories",)
_COPY: Path = ("copy",)
_READS: Path = ("vector", "reads")
_OUTPUT: Path = ("matrix", "output")
_RESERVED = ("matrix", "vector", "scalar")


def problems(arch: Arch) -> list[Problem]:
    """All contradictions in `arch`; empty if it is a valid machine."""
    rules = (
        _banks, _ports, _array_shape_problems, _rates, _vector_types, _queues, _copy_names, _peers,
        _roles,
        _operands, _results, _accumulators, _idle_memories,
        _forms_lacking, _forms_limited, encoding_problems, _energies, _areas,
    )  # fmt: skip
    return [problem for rule in rules for problem in rule(arch)]


def _banks(arch: Arch) -> Iterator[Problem]:
    for role, memory in arch.memories.on_chip().items():
        at: Path = ("memories", role)
        size, width = (*at, "size"), (*at, "bank_width")
        if memory.size % memory.banks:
            message = f"{memory.banks} banks do not divide {exact_bytes(memory.size)} evenly"
            yield Problem((*at, "banks"), message, (size,))
        elif memory.bank_size % memory.bank_width:
            message = (
                f"{memory.bank_width} bytes do not divide a bank of {memory.bank_size} bytes"
                f" (banks: {memory.banks}, size: {show_bytes(memory.size)})"
            )
            yield Problem(width, message, (size, (*at, "banks")))
        if memory.size % memory.alignment:
            message = f"{memory.alignment} bytes do not divide the size of {memory.size} bytes"
            yield Problem((*at, "alignment"), message, (size,))


def _ports(arch: Arch) -> Iterator[Problem]:
    for role, memory in arch.memories.on_chip().items():
        if not memory.split_ports:
            continue
        for given, other in (("read_ports", "write_ports"), ("write_ports", "read_ports")):
            if getattr(memory, given) is not None and getattr(memory, other) is None:
                message = f"{given} without {other}; give both, or ports for shared ones"
                yield Problem(("memories", role, given), message, (("memories", role, other),))
        if "ports" in memory.model_fields_set:
            message = "ports are shared by reads and writes, beside read_ports and write_ports"
            yield Problem(("memories", role, "ports"), message)


def _array_shape_problems(arch: Arch) -> Iterator[Problem]:
    kind = (("matrix", "kind"),)
    if arch.matrix.kind == "systolic" and arch.matrix.depth > 1:
        message = "only a cube has a depth; a systolic array has rows and cols"
        yield Problem(("matrix", "depth"), message, kind)
    if arch.matrix.kind == "cube" and arch.matrix.dataflow != "weight-stationary":
        message = "only a systolic array has a dataflow"
        yield Problem(("matrix", "dataflow"), message, kind)


def _rates(arch: Arch) -> Iterator[Problem]:
    for index, name in enumerate(arch.types):
        if arch.types.index(name) < index:
            yield Problem(("types", index), f"{name!r} stands here twice")
        elif arch.matrix.present and arch.matrix.peak(name) == 0:
            known = ", ".join(arch.matrix.rate)
            message = f"the matrix engine has no rate for {name!r}; matrix.rate has {known}"
            yield Problem(("types", index), message, (("matrix", "rate"),))


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


def _queues(arch: Arch) -> Iterator[Problem]:
    depth = arch.front_end.queue_depth
    if isinstance(depth, int):
        return
    for name in depth:
        if name not in arch.engines():
            message = f"no engine is called {name!r}; engines: {', '.join(arch.engines())}"
            message += near(name, arch.engines())
            yield Problem(("front_end", "queue_depth", name), message, (_COPY,))


def _copy_names(arch: Arch) -> Iterator[Problem]:
    for name in arch.copy_:
        if name in (*_RESERVED, *arch.units("matrix"), *arch.units("vector")):
            yield Problem(("copy", name), f"{name!r} is the name of another engine; pick a new one")


def _peers(arch: Arch) -> Iterator[Problem]:
    for name, engine in arch.copy_.items():
        ends = (("copy", name, "from"), ("copy", name, "to"))
        if engine.peer and "local" not in (*engine.from_, *engine.to):
            message = "peer reaches other cores' local memory; expected 'local' in from or to"
            yield Problem(("copy", name, "peer"), message, ends)


def _role_references(arch: Arch) -> Iterator[tuple[Path, str]]:
    """Every place that names a memory role, and the role."""
    yield ("matrix", "input"), arch.matrix.input
    yield ("matrix", "weights"), arch.matrix.weights
    yield _OUTPUT, arch.matrix.output
    lists: list[tuple[Path, tuple[str, ...]]] = [
        (_READS, arch.vector.reads), (("vector", "writes"), arch.vector.writes)
    ]  # fmt: skip
    for name, engine in arch.copy_.items():
        lists += [(("copy", name, "from"), engine.from_), (("copy", name, "to"), engine.to)]
    for name, link in arch.links.items():
        lists += [(("links", name, "from"), link.from_), (("links", name, "to"), link.to)]
    for at, roles in lists:
        for index, role in enumerate(roles):
            yield (*at, index), role


def _roles(arch: Arch) -> Iterator[Problem]:
    """Names of memories that do not exist, and engines that compute on DRAM."""
    have = ("dram", *arch.memories.on_chip())
    for at, role in _role_references(arch):
        if role not in have:
            message = f"the machine has no memory {role!r}; memories: {', '.join(have)}"
            yield Problem(at, message, (("memories", role),))
        elif role == "dram" and at[0] in ("matrix", "vector"):
            message = "engines compute on on-chip memories; a copy engine brings data from 'dram'"
            yield Problem(at, message)
        elif role == "shared" and at[0] in ("matrix", "vector"):
            message = "engines compute on memories of their core; 'shared' lies between the cores"
            yield Problem(at, message)


def _moves(arch: Arch) -> set[tuple[str, str]]:
    """Every path from one role to another: copies, and engines that read one and write the
    other."""
    moves: set[tuple[str, str]] = {(arch.matrix.input, arch.matrix.output)}
    if arch.matrix.writeback:
        moves.add((arch.matrix.output, "local"))
    moves |= {(read, write) for read in arch.vector.reads for write in arch.vector.writes}
    for engine in arch.copy_.values():
        moves |= {(source, target) for source in engine.from_ for target in engine.to}
    return moves


def _reachable_memories(start: str, moves: set[tuple[str, str]]) -> set[str]:
    found = {start}
    while more := {target for source, target in moves if source in found} - found:
        found |= more
    return found


def _copied(arch: Arch) -> set[str]:
    """Roles that only copies fill from DRAM (weights and inputs have no other path)."""
    engines = arch.copy_.values()
    return _reachable_memories(
        "dram", {(s, t) for engine in engines for s in engine.from_ for t in engine.to}
    )


def _exists(arch: Arch, role: str) -> bool:
    return role != "dram" and isinstance(arch.memories.get(role), Memory)


def _operands(arch: Arch) -> Iterator[Problem]:
    """Every memory that an engine reads must be reachable from DRAM."""
    about = (_COPY, _MEMORIES, ("matrix",), ("vector",))
    copied = _copied(arch)
    for key in ("input", "weights"):
        role = getattr(arch.matrix, key)
        if _exists(arch, role) and role not in copied:
            message = f"no copy engine brings data from 'dram' to {role!r}"
            yield Problem(("matrix", key), message, (_COPY, ("memories", role)))
    reached = _reachable_memories("dram", _moves(arch))
    for index, role in enumerate(arch.vector.reads):
        if _exists(arch, role) and role not in reached:
            yield Problem((*_READS, index), f"nothing brings data to {role!r}", about)
    for name, engine in arch.copy_.items():
        for index, role in enumerate(engine.from_):
            if _exists(arch, role) and role not in reached:
                yield Problem(("copy", name, "from", index), f"nothing fills {role!r}", about)


def _results(arch: Arch) -> Iterator[Problem]:
    """Every memory that an engine writes must have a path to DRAM."""
    about = (_COPY, _MEMORIES, ("vector",), ("matrix",))
    written: list[tuple[Path, str]] = [(_OUTPUT, arch.matrix.output)]
    written += [(("vector", "writes", i), role) for i, role in enumerate(arch.vector.writes)]
    for at, role in written:
        unread = role == "accumulators" and at == _OUTPUT and not _read_out(arch)
        if (
            _exists(arch, role)
            and not unread
            and "dram" not in _reachable_memories(role, _moves(arch))
        ):
            message = f"results in {role!r} cannot be stored: no path leads from there to 'dram'"
            yield Problem(at, message, about)


def _read_out(arch: Arch) -> bool:
    """Whether any engine reads sums from the accumulators."""
    copied = any("accumulators" in engine.from_ for engine in arch.copy_.values())
    return copied or "accumulators" in arch.vector.reads or bool(arch.matrix.writeback)


def _accumulators(arch: Arch) -> Iterator[Problem]:
    if arch.matrix.output == "accumulators" and not _read_out(arch):
        message = (
            "nothing reads the accumulators: expected 'accumulators' in vector.reads, "
            "or a matrix.writeback"
        )
        about = (_READS, ("matrix", "writeback"), _COPY)
        yield Problem(_OUTPUT, message, about)


def _idle_memories(arch: Arch) -> Iterator[Problem]:
    """On-chip memories that no engine uses."""
    used = {role for at, role in _role_references(arch) if at[0] != "links"}
    for role in arch.memories.on_chip():
        if role not in used:
            message = "no engine reads or writes this memory"
            yield Problem(("memories", role), message, (_COPY, ("matrix",), ("vector",)))


def _forms_lacking(arch: Arch) -> Iterator[Problem]:
    """Forms that no machine of this family has, or that every machine must have."""
    for index, pattern in enumerate(arch.isa.without):
        at: Path = ("isa", "without", index)
        meant = fnmatch.filter(forms(), pattern)
        needed = [name for name in meant if name in NEEDED]
        if needed:
            message = f"the compiler finishes results with {', '.join(needed)}; keep it"
            yield Problem(at, message)
        if not any(forms()[name].removable for name in meant):
            yield from _of_vector(at, pattern, meant)


def _forms_limited(arch: Arch) -> Iterator[Problem]:
    for pattern, limits in arch.isa.limits.items():
        at: Path = ("isa", "limits", pattern)
        yield from _of_vector(at, pattern, fnmatch.filter(forms(), pattern))
        if limits.rank is not None and limits.rank > arch.vector.rank:
            message = f"no more than the engine's own rank of {arch.vector.rank}"
            yield Problem((*at, "rank"), message, (("vector", "rank"),))
        most = arch.vector.max_extent
        if limits.max_extent is not None and most is not None and limits.max_extent > most:
            message = f"no more than the engine's own max_extent of {most}"
            yield Problem((*at, "max_extent"), message, (("vector", "max_extent"),))


def _of_vector(at: Path, pattern: str, meant: list[str]) -> Iterator[Problem]:
    """Patterns that match no form, or forms of engines whose own fields state their
    instructions."""
    if not meant:
        ends = [name for name in forms() if name.rpartition(".")[2] == pattern.lower()]
        meant_by = f"; did you mean {ends[0]!r}?" if ends else near(pattern, forms())
        yield Problem(at, f"no form is called {pattern!r}{meant_by} (archgen isa lists all)")
    of_elements = ("vector", "scalar")
    if meant and not any(f.engine in of_elements for n, f in forms().items() if n in meant):
        message = (
            f"{meant[0]} is no function of the vector engine; matrix.granularity, "
            "matrix.depthwise, vector.window and copy say what other engines are told"
        )
        yield Problem(at, message)


def _energies(arch: Arch) -> Iterator[Problem]:
    """Energies of parts that the machine does not have."""
    given, have = arch.energy, ("dram", *arch.memories.on_chip())
    for role in given.memories:
        at: Path = ("energy", "memories", role)
        if role not in have:
            message = f"the machine has no memory {role!r}; memories: {', '.join(have)}"
            yield Problem(at, message, (("memories", role),))
    for name in given.links:
        if name not in arch.links:
            links = ", ".join(arch.links) or "none"
            message = f"no link is called {name!r}; links: {links}{near(name, arch.links)}"
            yield Problem(("energy", "links", name), message, (("links",),))
    for name in given.mac:
        if arch.matrix.present and arch.matrix.peak(name) == 0:
            known_types = ", ".join(arch.matrix.rate)
            message = f"the matrix engine has no {name!r}; matrix.rate has {known_types}"
            yield Problem(("energy", "mac", name), message, (("matrix", "rate"),))


def _areas(arch: Arch) -> Iterator[Problem]:
    """Areas of parts that the machine does not have, and areas that are stated twice."""
    whole, all_terms = tuple(parts(arch)), tuple(terms(arch))
    given = arch.energy.area.parts
    for name in given:
        at: Path = ("energy", "area", "parts", name)
        part = name.partition(" ")[0]
        if name not in (*whole, *all_terms):
            yield Problem(at, f"the machine has no part {name!r}{_part_meant(arch, name)}")
        elif part in given and name != part:
            yield Problem(at, f"{name!r} is in {part!r}, which is stated as a whole")
        elif field := own_field(arch, name):
            yield Problem(at, f"arch.{'.'.join(field)} states it as well", (field,))
    for name in arch.energy.area.extra:
        if name in (*whole, *all_terms):
            message = f"{name!r} is a part of the machine: it belongs under parts"
            yield Problem(("energy", "area", "extra", name), message)


def _part_meant(arch: Arch, name: str) -> str:
    """The part of an area that is stated for a part which cannot be stated as a whole."""
    if name in ("dram", *arch.memories.on_chip()):
        return f"; a memory's is arch.energy.memories.{name}.area"
    if name == "other":
        return "; it is arch.energy.area.other"
    known = (*parts(arch), *terms(arch))
    return near(name, known) or f"; parts: {', '.join(parts(arch))}; own terms go under extra"
