"""Extensions: they reach every worker and every key; what one process alone knows is refused."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from host_only import invoke
from networks import model as model_of
from onnx import helper

from archgen.extensions import ExtensionError, activate, extension, unowned
from archgen.studies.design import StudyError
from archgen.studies.results import Study, open_study
from archgen.studies.sweep import study
from compiler.api import OPERATORS
from simmodel.isa.functions import UNARY

pytestmark = pytest.mark.usefixtures("own_cache")
MACHINES = ["tpu-v3-like", "neuroncore-v2-like"]
SOFTSIGN = """
import numpy as np
from compiler.api import OPERATORS, elementwise
from simmodel.isa.functions import UNARY, Function

UNARY["softsign"] = Function("{cost}", lambda x: x / (1 + np.abs(x)))
elementwise.UNARY["Softsign"] = "softsign"
OPERATORS["Softsign"] = elementwise.unary
"""
SHIPPED = OPERATORS["Softsign"]
THREE, ONE = [14, 14], [8, 8]
"""Instructions on both machines, with the functions of what is shipped and with one."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = Softsign(Neg(x)); what is shipped makes three functions of Softsign."""
    nodes = [helper.make_node("Neg", ["x"], ["r"]), helper.make_node("Softsign", ["r"], ["y"])]
    path = tmp_path / "net.onnx"
    onnx.save(model_of(nodes, {"x": [1, 8192]}, {"y": [1, 8192]}, name="net"), path)
    return path


def written(folder: Path, cost: str = "special") -> Path:
    path = folder / "softsign.py"
    path.write_text(SOFTSIGN.format(cost=cost))
    return path


def run(model: Path, *extensions: Path, jobs: int = 1, out: Path | None = None) -> Study:
    return study(
        MACHINES, [model], jobs=jobs, effort=[0], verify=False, out=out, plots=False,
        extensions=extensions,
    )  # fmt: skip


def counts(found: Study) -> list[int]:
    """Instructions on each machine: fewer where Softsign is one function."""
    return [int(count) for count in found.frame["instructions"]]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_extension_reaches_every_worker_and_leaves_nothing(
    tmp_path: Path, model: Path, jobs: int
) -> None:
    assert counts(run(model, written(tmp_path), jobs=jobs)) == ONE
    assert OPERATORS["Softsign"] is SHIPPED
    assert unowned() == []


def test_results_are_stored_for_the_extension_as_it_is(tmp_path: Path, model: Path) -> None:
    out = tmp_path / "out"
    plain = run(model, out=out)
    assert counts(plain) == THREE
    first = run(model, written(tmp_path), out=out)
    assert (first.reused, counts(first)) == (0, ONE)
    assert run(model, written(tmp_path), out=out).reused == 2
    changed = run(model, written(tmp_path, cost="simple"), out=out)
    assert changed.reused == 0
    before, after = first.frame["latency_cycles"], changed.frame["latency_cycles"]
    assert (after != before).all()
    assert run(model, out=out).reused == 2


def test_what_an_extension_imports_from_beside_it_is_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from deeper import y\n")
    (tmp_path / "deeper.py").write_text("y = 1\n")
    path = tmp_path / "ext.py"
    path.write_text("import numpy, mine\n")
    before = extension(path)
    assert extension(path) == before
    (tmp_path / "deeper.py").write_text("y = 2\n")
    assert extension(path).content != before.content


def test_an_installed_package_gives_an_extension_by_the_name_of_its_entry_point(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "softsign.py").write_text(SOFTSIGN.format(cost="special"))
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[archgen.extensions]\nmy-softsign = mine.softsign\n")
    monkeypatch.syspath_prepend(tmp_path)
    one = extension("my-softsign")
    assert (one.path, one.distribution) == (str(tmp_path / "mine" / "softsign.py"), "mine 1.0")
    assert counts(run(model, Path("my-softsign"))) == ONE
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.1\n")
    assert extension("my-softsign").content != one.content


def test_extensions_here_are_those_of_the_study_and_no_others(tmp_path: Path) -> None:
    one = extension(written(tmp_path))
    activate((one,))
    assert OPERATORS["Softsign"] is not SHIPPED
    activate(())
    assert OPERATORS["Softsign"] is SHIPPED
    assert "softsign" not in UNARY


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 +", "is not Python"),
        ("from compiler.lowering.lower import TABEL", "ImportError"),
        ("\nraise ValueError('no')", "broken.py:2: ValueError: no"),
        (
            "from simmodel.isa.functions import Function\nFunction('dear', abs)",
            "broken.py:2: ValueError: no cost class 'dear' of the vector engine; there are simple, "
            "multiply, divide, special",
        ),
        (None, "No such file"),
    ],
)
def test_a_broken_extension_is_wrong_input(
    tmp_path: Path, model: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "broken.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StudyError, match=r"extension .*broken.py") as caught:
        run(model, path)
    assert said in str(caught.value)


LOWERING = """
from compiler.api import OPERATORS

def lowered(node):
    return {}[node.op]

OPERATORS["Softsign"] = lowered
"""
PASS = """
from dataclasses import dataclass
from compiler.api import GRAPH_PASSES, GraphPass

@dataclass(frozen=True)
class Mine(GraphPass):
    def rewrite(self, node):
        return node.attributes[7] if node.op_type == "Softsign" else False

GRAPH_PASSES.insert(0, Mine())
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            LOWERING,
            r":5, in lowered, failed on node 'Softsign_1' \(ai.onnx.Softsign\): "
            r"KeyError: 'Softsign'",
        ),
        (PASS, r":8, in rewrite, failed on node 'Softsign_1' \(ai.onnx.Softsign\): KeyError: 7"),
    ],
)
def test_an_error_in_a_function_of_an_extension_is_its_own(
    tmp_path: Path, model: Path, text: str, said: str
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    given = ["-m", str(model), "--effort", "0", "--extension", str(path)]
    made = invoke("compile", MACHINES[0], *given)
    assert isinstance(made.exception, ExtensionError)  # exit code 2, and no report to attach
    told = re.compile(rf"extension {re.escape(str(path))}{said}")
    assert told.fullmatch(str(made.exception))
    found = run(model, path, out=tmp_path / "out").frame
    assert list(found["status"]) == ["failed", "failed"]
    assert all(told.fullmatch(reason) for reason in found["reason"])
    assert not list(tmp_path.glob("out/runs/*.error.txt"))


def test_a_study_file_and_the_command_line_name_extensions(tmp_path: Path, model: Path) -> None:
    written(tmp_path)
    file = tmp_path / "s.yaml"
    file.write_text(
        f"archs: {MACHINES[0]}\nmodels: {model.name}\nextensions: softsign.py\nverify: false\n"
        "compiler: {effort: 0}\n"
    )
    arguments = ["--no-plots", "--out", str(tmp_path / "out"), "--jobs", "1"]
    result = invoke("study", str(file), *arguments)
    assert result.exit_code == 0, result.output
    assert counts(open_study(tmp_path / "out")) == ONE[:1]
    given = ["-m", str(model), "--effort", "0", "--extension", str(tmp_path / "softsign.py")]
    made = invoke("compile", MACHINES[0], *given)
    assert "33 lines" in made.stderr
