"""From a study file to a design: names become machines and networks, lists become combinations.

Paths in a study file are relative to its folder. What is wrong is said where it stands in the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from archgen.design import Design, StudyError, Workload, twice
from archgen.knobs import Settings
from archgen.scheduling import Scheduling, choices
from archgen.schema.load import load_all
from archgen.schema.mistakes import Mistake, dotted
from archgen.schema.mistakes import Path as TreePath
from archgen.schema.shipped import locate, shipped_names
from archgen.schema.source import STUDY
from archgen.schema.tree import Node, Row, Table, find, position
from archgen.study_file import Compiler, Machines, Network, StudyFile, read_study
from archgen.variants import Choice, Variant, combinations, tree_of, variant


def load_study(path: Path) -> Design:
    """The design that a study file describes.

    Raises StudyError with every mistake of the file and of the architectures that it names.
    """
    file, tree, mistakes = read_study(path, str(path))
    if file is None or tree is None:
        raise StudyError(map(str, sorted(set(mistakes))))
    maker = _Maker(path, tree)
    design = maker.design(file)
    if maker.mistakes:
        raise StudyError(map(str, sorted(set(maker.mistakes))))
    return design


class _Maker:
    """Resolves the parts of one file and collects what is wrong with them."""

    def __init__(self, path: Path, tree: Table) -> None:
        self.path, self.tree = path, tree
        self.mistakes: list[Mistake] = []

    def design(self, file: StudyFile) -> Design:
        machines: list[Variant] = []
        for index, entry in enumerate(file.archs):
            found = self._machines(entry, self._item(("archs",), index))
            machines += [machine for machine in found if machine not in machines]
        self._say(("archs",), twice(machines))
        return Design(
            machines=tuple(machines),
            workloads=tuple(self._workload(entry, file) for entry in file.models),
            dtypes=file.dtypes or (),
            ways=tuple(self._ways(file.compiler)),
            verify=file.verify,
            host=file.host,
            only=tuple(file.only),
            skip=tuple(file.skip),
            timeout=file.timeout,
            name=file.name or self.path.stem,
            description=file.description,
            source=self.path.read_text(encoding="utf-8-sig"),
        )

    def _say(self, path: TreePath, said: list[str]) -> None:
        at, shown = position(self.tree, path), dotted(path, STUDY.root)
        self.mistakes += [Mistake(at, shown, message) for message in said]

    def _item(self, path: TreePath, index: int) -> TreePath:
        """The path of an item of a list that may be written as its only item."""
        return (*path, index) if isinstance(find(self.tree, path), Row) else path

    def _file(self, name: str) -> str:
        """A name as it is found from here: shipped, or relative to the study's folder."""
        if name in shipped_names() and not (self.path.parent / name).exists():
            return name
        return os.path.normpath(self.path.parent / name)

    def _machines(self, entry: str | Machines, path: TreePath) -> list[Variant]:
        if isinstance(entry, Machines):
            return list(self._family(entry, path))
        archs, mistakes = load_all([self._file(entry)])
        for mistake in mistakes:
            where = mistake.at.file == self._file(entry) and not mistake.at.line
            if where:
                self._say(path, [f"{entry!r}: {mistake.message}"])
            else:
                self.mistakes.append(mistake)
        return [Variant(arch, arch.name) for arch in archs]

    def _family(self, entry: Machines, path: TreePath) -> Iterator[Variant]:
        named = self._file(entry.extends)
        if not named.endswith((".yaml", ".yml")) and os.path.isfile(f"{named}.yaml"):
            named = f"{named}.yaml"
        file, missing = locate(named)
        if missing is not None:
            self._say((*path, "extends"), [f"{entry.extends!r}: {missing.message}"])
            return
        base, mistakes = tree_of(file, str(file))
        self.mistakes += mistakes
        if base is None:
            return
        common = self._values((*path, "set"))
        swept = {f: self._row((*path, "sweep", f), values) for f, values in entry.sweep.items()}
        cases = [self._values((*path, "cases", index)) for index in range(len(entry.cases))]
        for choice in combinations(swept, cases):
            made, wrong = variant(base, choice, entry.name, common)
            self.mistakes += wrong
            if made is not None:
                yield made

    def _values(self, path: TreePath) -> Choice:
        node = find(self.tree, path)
        return {f: e.node for f, e in node.entries.items()} if isinstance(node, Table) else {}

    def _row(self, path: TreePath, values: list[Any]) -> tuple[Node, ...]:
        node = find(self.tree, path)
        if isinstance(node, Row) and values:
            return node.items
        self._say(path, ["expected a list of at least one value"])
        return ()

    def _workload(self, entry: str | Network, file: StudyFile) -> Workload:
        network = Network(model=entry) if isinstance(entry, str) else entry
        given = network.calibration or file.calibration
        return Workload(
            self._model(network.model),
            tuple(dict.fromkeys(network.batches or file.batches)),
            tuple(sorted({**file.dims, **network.dims}.items())),
            os.path.normpath(self.path.parent / given) if given else None,
        )

    def _model(self, spec: str) -> str:
        is_path = spec.endswith(".onnx") or "/" in spec
        return os.path.normpath(self.path.parent / spec) if is_path else spec

    def _ways(self, compiler: Compiler) -> list[Scheduling]:
        path = ("compiler", "passes")
        ways, wrong = choices(
            compiler.fusion, compiler.halo, compiler.objective, compiler.effort,
            list(_settings(compiler.passes)),
        )  # fmt: skip
        self._say(path, wrong)
        return ways


def _settings(passes: Mapping[str, Any]) -> Iterator[Settings]:
    """Every combination of the values of pass options."""
    lists = [value if isinstance(value, list) else [value] for value in passes.values()]
    for values in product(*lists):
        yield tuple(sorted(zip(passes, values, strict=True)))
