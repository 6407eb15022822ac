"""From a study file to a design: names become machines and networks, lists become combinations.

Paths in a study file are relative to its folder. What is wrong is said where it stands in the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import archgen.schema.tree as trees
from archgen.extensions import Extension, active_extensions
from archgen.models.constants import file_and_values, with_values
from archgen.models.extents import extents, shapes
from archgen.scheduling import Scheduling, choices, combinations_of
from archgen.schema import variants
from archgen.schema.load import load_files, locate, read_family
from archgen.schema.source import STUDY
from archgen.schema.tree import ListNode, Mistake, Node, ScalarNode, Table
from archgen.schema.tree import Path as TreePath
from archgen.studies import design as designs
from archgen.studies.design import Design, StudyError, Workload
from archgen.studies.file import Compiler, Machines, StudyFile, StudyNetwork, checked, read_study

MOST = 20_000
"""Machines of one entry: more would be a day of runs, and minutes before the first of them."""


def load_study(path: Path) -> Design:
    """The design that a study file describes.

    Raises StudyError with every mistake of the file and of the architectures that it names.
    """
    file, maker = opened(path)
    design = maker.design(file)
    maker.check(design)
    return design


def opened(given: Path | Mapping[str, Any]) -> tuple[StudyFile, StudyResolver]:
    """A study file, or what one would hold, less what is wrong with it by itself, and who resolves
    what it names and knows what that is.

    Raises StudyError where nothing of it can be read.
    """
    if isinstance(given, Path):
        file, tree, mistakes = read_study(given, str(given))
        text = "" if file is None else given.read_text(encoding="utf-8-sig")
    else:
        tree = variants.table_of(given)
        file, mistakes = checked(tree)
        text = json.dumps(trees.plain(tree), indent=1)
    if file is None or tree is None:
        raise StudyError(map(str, mistakes))
    return file, StudyResolver(
        given if isinstance(given, Path) else Path("study"), tree, text, mistakes
    )


class StudyResolver:
    """Resolves the parts of one file and collects what is wrong with them.

    Where `mistakes` are known already, parts of the file are missing: what may follow from that is
    no further mistake.
    """

    def __init__(self, path: Path, tree: Table, text: str, mistakes: Sequence[Mistake]) -> None:
        self.path, self.tree, self.text = path, tree, text
        self.mistakes = [*mistakes]
        self.whole = not mistakes

    def check(self, design: Design) -> None:
        """Raises StudyError where anything is wrong."""
        if self.mistakes:
            self.refuse(design)

    def refuse(self, design: Design | None = None) -> NoReturn:
        """Raises StudyError with everything that is wrong, also with the rest of `design`."""
        besides = [] if design is None else designs.other_mistakes(design)
        raise StudyError(trees.in_order([*map(str, sorted(set(self.mistakes))), *besides]))

    def design(self, file: StudyFile) -> Design:
        """The machines, networks and options."""
        if {"/", "\\"} & {*file.name} or file.name in (".", ".."):
            self.say(("name",), [f"{file.name!r} cannot name the folder of results"])
        extensions = tuple(self._extensions(file))
        with active_extensions(extensions, file.timeout):
            machines = tuple(self._all_machines(file))
        return Design(
            machines=machines,
            workloads=tuple(
                load
                for index, entry in enumerate(file.models)
                for load in self._workloads(entry, file, self._item(("models",), index))
            ),
            dtypes=file.dtypes or (),
            ways=tuple(self._schedulings(file.compiler)),
            verify=file.verify,
            host=file.host,
            isolated=file.isolated,
            execute=file.execute,
            in_flight=file.in_flight,
            only=tuple(file.only),
            skip=tuple(file.skip),
            extensions=extensions,
            timeout=file.timeout,
            name=file.name or self.path.stem,
            description=file.description,
            source=self.text,
            places=dict(self._mistake_places(file)),
        )

    def _all_machines(self, file: StudyFile) -> list[variants.Variant]:
        """Those of all entries, each once."""
        machines: list[variants.Variant] = []
        for index, entry in enumerate(file.archs):
            path = self._item(("archs",), index)
            before = {machine.arch.name: machine for machine in machines}
            found = [m for m in self._machines(entry, path) if before.get(m.arch.name) != m]
            self._distinct(machines, found, path)
            machines += found
        fields = _set_apart(file, machines)
        return [_with_settings(machine, fields) for machine in machines]

    def _mistake_places(self, file: StudyFile) -> Iterator[tuple[str, str]]:
        """Where element types and filters stand, each filter, and the columns that it names."""
        for which in ("dtypes", "only", "skip"):
            yield which, self._location((which,))
        for which, patterns in (("only", file.only), ("skip", file.skip)):
            for index, pattern in enumerate(patterns):
                item = f"{which}[{index}]"
                yield item, self._location((which, index))
                for name in pattern:
                    yield f"{item}.{name}", self._location((which, index), (which, index, name))

    def _location(self, path: TreePath, key: TreePath = ()) -> str:
        at = trees.position(self.tree, key, key=True) if key else trees.position(self.tree, path)
        return f"{at}: {trees.dotted(path, STUDY.root)}"

    def _distinct(
        self, before: list[variants.Variant], found: list[variants.Variant], path: TreePath
    ) -> None:
        """Names have to tell machines apart."""
        if not self.whole:
            return
        templated = trees.find(self.tree, (*path, "name")) is not None
        hint = "; `name` has to tell them apart, by fields such as {cores}" if templated else ""
        said = [f"{each}{hint}" for each in designs.duplicate_names([*before, *found], before)]
        self.say((*path, "name") if templated else path, said)

    def say(self, path: TreePath, said: list[str]) -> None:
        """What is wrong with the value at `path`."""
        at, shown = trees.position(self.tree, path), trees.dotted(path, STUDY.root)
        self.mistakes += [Mistake(at, shown, message) for message in said]

    def _item(self, path: TreePath, index: int) -> TreePath:
        """The path of an item of a list that may be written as its only item."""
        return (*path, index) if isinstance(trees.find(self.tree, path), ListNode) else path

    def _file(self, name: str) -> str:
        """A name as it is found from here: shipped, or relative to the study's folder."""
        near = self.path.parent / name
        bare = os.path.basename(name) == name and not name.endswith((".yaml", ".yml"))
        if bare and "*" not in name and not near.exists() and not Path(f"{near}.yaml").exists():
            return name
        return os.path.normpath(near)

    def _machines(self, entry: str | Machines, path: TreePath) -> list[variants.Variant]:
        if isinstance(entry, Machines):
            return list(self._family(entry, path))
        found, mistakes = load_files([self._file(entry)])
        for mistake in mistakes:
            where = mistake.at.file == self._file(entry) and not mistake.at.line
            if where:
                self.say(path, [f"{entry!r}: {mistake.message}"])
            else:
                self.mistakes.append(mistake)
        return [designs.as_variant(loaded) for loaded in found]

    def base(self, file: StudyFile) -> tuple[Table, str] | None:
        """The tree of the only machine of a file, and the file that it extends."""
        if not file.archs:
            return None
        entry = file.archs[0]
        family = entry if isinstance(entry, Machines) else Machines(extends=entry)
        if len(file.archs) > 1 or family.sweep or family.cases:
            self.say(("archs",), ["expected one machine: a file, or one family without a sweep"])
            return None
        item = self._item(("archs",), 0)
        found = self._extended(family, (*item, "extends") if entry is family else item)
        if found is None:
            return None
        common = dict(self._setting_nodes((*item, "set"))) if entry is family else {}
        if family.name is not None:
            common["name"] = ScalarNode(self.tree.at, family.name, family.name)
        return variants.overlaid(found[0], common), found[1]

    def _extended(self, entry: Machines, path: TreePath) -> tuple[Table, str] | None:
        """The tree of the file that `entry` extends, named at `path`, and its name."""
        named = self._file(entry.extends)
        if not named.endswith((".yaml", ".yml")) and os.path.isfile(f"{named}.yaml"):
            named = f"{named}.yaml"
        file, missing = locate(named)
        if missing is not None:
            self.say(path, [f"{entry.extends!r}: {missing.message}"])
            return None
        base, mistakes, whole = read_family(file, str(file))
        self.mistakes += mistakes
        return (base, named) if base is not None and whole else None

    def _family(self, entry: Machines, path: TreePath) -> Iterator[variants.Variant]:
        found = self._extended(entry, (*path, "extends"))
        if found is None:
            return
        base, named = found
        common = self._setting_nodes((*path, "set"))
        swept = {
            f: self._value_nodes((*path, "sweep", f), values) for f, values in entry.sweep.items()
        }
        cases = [self._setting_nodes((*path, "cases", index)) for index in range(len(entry.cases))]
        # A field has one place in an entry: what is swept or of a case is not set as well.
        for index, case in enumerate(entry.cases):
            for field in sorted({*case} & {*entry.sweep}):
                self.say((*path, "cases", index, field), [f"{field!r} is swept as well"])
        for field in sorted({*entry.sweep} & {*entry.set}):
            self.say((*path, "sweep", field), [f"{field!r} is set as well, for all machines"])
        size = prod(max(1, len(row)) for row in swept.values()) * max(1, len(cases))
        if size > MOST:
            said = f"{size:,} machines are more than {MOST:,}; give fewer values"
            self.say((*path, "sweep"), [f"{said}, or search them with `archgen explore`"])
            return
        whole = self.whole and all(swept.values())  # otherwise what else is wrong is still found
        template = entry.name if whole else None
        for choice in variants.combinations({f: row for f, row in swept.items() if row}, cases):
            made, wrong = variants.variant(base, choice, template, common)
            self._add_machine_mistakes(wrong, path)
            if made is not None:
                yield replace(made, file=named)

    def _add_machine_mistakes(self, wrong: list[Mistake], path: TreePath) -> None:
        """Mistakes of a machine of the family at `path`: those of its name where this file gives
        it, and an unknown field once for all its values."""
        known = {(mistake.path, mistake.message) for mistake in self.mistakes}
        for each in wrong:
            if each.path == "arch.name" and each.at.file != str(self.path):
                self.say((*path, "name"), [each.message])
            elif (each.path, each.message) not in known or "unknown key" not in each.message:
                self.mistakes.append(each)

    def _setting_nodes(self, path: TreePath) -> variants.Choice:
        node = trees.find(self.tree, path)
        return {f: e.node for f, e in node.entries.items()} if isinstance(node, Table) else {}

    def _value_nodes(self, path: TreePath, values: list[Any]) -> tuple[Node, ...]:
        node = trees.find(self.tree, path)
        if isinstance(node, ListNode) and values:
            return node.items
        self.say(path, ["expected a list of at least one value"])
        return ()

    def _workloads(
        self, entry: str | StudyNetwork, file: StudyFile, path: TreePath
    ) -> Iterator[Workload]:
        """A network at each combination of its sizes."""
        network = StudyNetwork(model=entry) if isinstance(entry, str) else entry
        given = network.calibration or file.calibration
        asked = {**file.dims, **network.dims}
        for shape in shapes({name: extents(own, ranges=True) for name, own in asked.items()}):
            yield Workload(
                self._model(network.model),
                tuple(dict.fromkeys(network.batches or file.batches)),
                shape.dims,
                tuple(sorted(network.roles.items())),
                os.path.normpath(self.path.parent / given) if given else None,
                shape.ranges,
                self._location(path),
                self._location((*path, "calibration") if network.calibration else ("calibration",)),
            )

    def _extensions(self, file: StudyFile) -> Iterator[Extension]:
        for index, name in enumerate(file.extensions or ()):
            is_path = name.endswith(".py") or "/" in name
            place = os.path.normpath(self.path.parent / name) if is_path else name
            found, wrong = designs.loaded_extensions([place])
            self.say(self._item(("extensions",), index), wrong)
            yield from found

    def _model(self, spec: str) -> str:
        path, values = file_and_values(spec)
        if not (path.endswith((".onnx", ".encodings")) or "/" in path):
            return spec
        return with_values(os.path.normpath(self.path.parent / path), filter(None, [values]))

    def _schedulings(self, compiler: Compiler) -> list[Scheduling]:
        path: TreePath = ("compiler", "passes")
        for name, value in compiler.passes.items():
            self.say((*path, name), ["expected at least one value"] if value == [] else [])
        ways, wrong = choices(
            compiler.fusion, compiler.halo, compiler.objective, compiler.effort,
            list(combinations_of(compiler.passes)),
        )  # fmt: skip
        for each in wrong:
            option = next((name for name in compiler.passes if f"{name!r}:" in each), None)
            self.say((*path, option) if option is not None else path, [each])
        return ways


def _set_apart(file: StudyFile, machines: list[variants.Variant]) -> list[str]:
    """Fields that entries of a file set, and in which machines of one family differ by that."""
    entries = [entry for entry in file.archs if isinstance(entry, Machines)]
    given = {f for entry in entries for f, v in entry.set.items() if not isinstance(v, dict | list)}
    held: dict[tuple[str, str], set[variants.Scalar]] = {}
    for field, machine in product(sorted(given), machines):
        held.setdefault((field, machine.family), set()).add(variants.value_of(machine.arch, field))
    return list(dict.fromkeys(field for (field, _), values in held.items() if len(values) > 1))


def _with_settings(machine: variants.Variant, fields: list[str]) -> variants.Variant:
    """`machine` with these fields among those that set it apart."""
    known = {setting.field for setting in machine.settings}
    values = {f: variants.value_of(machine.arch, f) for f in fields if f not in known}
    more = tuple(
        variants.Setting(f, value, str(value)) for f, value in values.items() if value is not None
    )
    return replace(machine, settings=(*machine.settings, *more)) if more else machine
