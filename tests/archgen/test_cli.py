"""The command line: every verb helps, starts fast, and answers mistakes with sentences."""

from __future__ import annotations

import errno
import gc
import json
import os
import pickle
import re
import subprocess
import sys
import traceback
import warnings
from io import BytesIO, TextIOWrapper
from pathlib import Path
from runpy import run_module

import onnx_ir as ir
import pytest
from host_only import invoke, small_model
from role_nets import STREAMING, net, saved

import archgen
from archgen.cli.main import VERBS, main, report_error
from archgen.cli.summary import shortened
from archgen.cli.terminal import plain_table, show
from archgen.process.internal_errors import error_line, written
from archgen.process.start import DamagedFile, collecting_rarely, configure_messages
from archgen.scheduling import OptionError
from archgen.schema.tree import ArchError, FilePosition, Mistake
from archgen.studies.design import StudyError
from compiler.errors import UnsupportedModel, on
from compiler.frontend.rewrite import static_shape
from compiler.passes import PassFailed

pytestmark = pytest.mark.usefixtures("own_cache")


def test_an_interrupt_is_no_bad_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 would say that a point failed."""

    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("archgen.cli.main.Verbs.get_command", pressed)
    assert (found := invoke("check", "soma-edge")).exit_code == 130
    assert found.output == "interrupted\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example(verb: str) -> None:
    result = invoke(verb, "--help")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 8


def test_the_readme_shows_every_verb_and_links_to_files_that_exist() -> None:
    root = Path(__file__).parents[2]
    text = (root / "README.md").read_text(encoding="utf-8")
    assert all(f"archgen {verb}" in text for verb in VERBS)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert all((root / link).exists() for link in links)


def test_ci_finds_its_commands_in_the_readme() -> None:
    root = Path(__file__).parents[2]
    lines = (root / "README.md").read_text(encoding="utf-8").splitlines()
    patterns = re.findall(r"grep -m 1 [\"'](.+)[\"'] README", (root / ".ci/run").read_text())
    assert len(patterns) == 2
    for pattern in patterns:
        assert sum(bool(re.match(pattern, line)) for line in lines) == 1


COMPILING = ("onnx_ir", "sympy", "onnxruntime", "compiler.options", "compiler.pipeline")
DRAWING = ("pandas", "pyarrow", "matplotlib", "jinja2", "simpy")


def imported(heavy: tuple[str, ...], *commands: str) -> dict[str, list[str]]:
    """Of each command, one after the other in one process, modules of `heavy` behind it."""
    code = (
        "import json, sys; from archgen.cli.main import cli\n"
        f"for command in {commands!r}:\n"
        "    try: cli(command.split())\n"
        "    except SystemExit as end: assert not end.code, command\n"
        f"    print(json.dumps([command, [m for m in {heavy!r} if m in sys.modules]]))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    said = [line for line in result.stdout.splitlines() if line.startswith('["')]
    return dict(json.loads(line) for line in said)


def test_what_compiles_nothing_imports_no_compiler() -> None:
    topics = ("architecture", "study", "columns", "stalls", "codes", "lint", "words", "laws")
    files = ("check mcu-npu", "lint mcu-npu", "isa mcu-npu", "schema", "models")
    asked = ("--version", *files, *(f"explain {topic}" for topic in topics))
    assert imported((*COMPILING, *DRAWING), *asked) == {each: [] for each in asked}


def test_what_shows_finished_points_imports_no_compiler() -> None:
    asked = ("results --help", "report --help")
    assert imported(COMPILING, *asked) == {each: [] for each in asked}


def test_what_looks_at_files_alone_imports_no_arithmetic_and_no_processes() -> None:
    slow = ("numpy", "onnx", "simmodel.isa", "multiprocessing", "filelock", "archgen.studies.file")
    slow = (*COMPILING, *DRAWING, *slow)
    asked = ("--version", "check soma-edge", "lint soma-edge", "schema")
    assert imported(slow, *asked) == {each: [] for each in asked}
    assert imported((*slow, "rich", "pydantic"), "--help") == {"--help": []}


def test_names_that_a_terminal_has_no_letters_for_are_spelled_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(told, encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    configure_messages()
    show([], ["\u00e9.onnx"])
    sys.stdout.flush()
    assert told.getvalue() == rb"\xe9.onnx" + os.linesep.encode()
    damaged = (DamagedFile("f is damaged"), DamagedFile, "here.py", 1)
    assert [warnings.formatwarning(*damaged) for _ in "ab"] == ["warning: f is damaged\n", ""]


def test_only_a_width_that_is_known_leaves_columns_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for width, all_shown in (("", True), ("80", False)):
        monkeypatch.setenv("COLUMNS", width)
        show([plain_table("kept", "spare", rows=[("a" * 60, "b" * 60)], spare=("spare",))])
        assert ("b" * 60 in capsys.readouterr().out) is all_shown


def test_a_reason_that_is_cut_says_where_all_of_it_is() -> None:
    assert shortened("one\n  two") == "one\n    two"
    assert shortened("long " * 50).endswith("...\n    ... in full: `reason` in results.csv")
    assert shortened("a\n" * 6, "here").endswith("a\n    ... 2 more lines, in full: here")


def test_a_full_disk_is_no_error_of_archgen(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(OSError(errno.ENOSPC, "No space left on device")) == 2
    assert capsys.readouterr().err == "error: [Errno 28] No space left on device\n"


def test_options_of_passes_are_read_as_results_have_them() -> None:
    made = ("compile", "soma-edge", "-m", "gemm:m=8,n=8,k=8", "--after", "plan")
    given = ("order.distance=1.0", "skip_masked.enabled=False")
    assert invoke(*made, *(word for each in given for word in ("--pass", each))).exit_code == 0


def test_compile_takes_roles(tmp_path: Path) -> None:
    path = str(saved(net(STREAMING), tmp_path))
    given = ("-m", path, "-b", "2", "--role", "conv_cache=state:none")
    refused = invoke("compile", "soma-edge", *given)
    assert "it cannot run at batch 2" in str(refused.exception)


def test_an_internal_error_is_one_line_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise PassFailed("fold-bias (apply) on node 'a' (Add): KeyError: 'z'; ran before it: b")

    monkeypatch.setattr("archgen.cli.compile.compile_best", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = small_model(tmp_path / "small.onnx")
    monkeypatch.setattr("sys.argv", ["archgen", "compile", "soma-edge", "-m", str(model)])
    with pytest.raises(SystemExit) as ended:
        main()
    (path,) = tmp_path.glob("archgen-error-*.txt")
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert "error: internal error in pass fold-bias (apply) on node 'a' (Add): KeyError" in said
    assert f"please report it with {path}" in said and "Traceback" not in said
    assert "command: archgen compile" in path.read_text()


def test_the_package_runs_as_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["archgen", "--version"])
    with pytest.raises(SystemExit) as ended:
        run_module("archgen", run_name="__main__")
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("archgen ")


def test_public_names_are_documented_functions_and_classes() -> None:
    for name in archgen.__all__:
        found = getattr(archgen, name)
        assert callable(found)
        assert found.__doc__
        assert getattr(archgen, name) is found
    with pytest.raises(AttributeError, match="nonsense"):
        archgen.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_the_stub_names_what_the_package_exports() -> None:
    stub = Path(archgen.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    named = [line.rsplit(" ", 1)[-1] for line in stub.splitlines() if line.startswith("from")]
    assert named == archgen.__all__


# What is said of archgen's own errors: where, on what, and nothing that a user cannot use.


def mistaken() -> ValueError:
    """An error that one of our functions raises on a node."""
    with pytest.raises(ValueError) as found, on("node 'a' (Add)"):
        static_shape(ir.val("x"))
    return found.value


def test_an_error_says_where_it_happened_and_to_what() -> None:
    expected = (
        r"internal error in compiler/frontend/rewrite\.py:\d+ on node 'a' \(Add\): "
        r"ValueError: shape of x is not static: None"
    )
    assert re.fullmatch(expected, error_line(mistaken()))


def test_an_error_of_another_process_says_the_same() -> None:
    """Sent from there it has no frames, only a note of them."""
    here = mistaken()
    here.add_note("".join(traceback.format_exception(here)))
    assert (
        error_line(pickle.loads(pickle.dumps(here))) == error_line(here) == error_line(mistaken())
    )


def test_an_error_of_a_pass_names_it() -> None:
    assert (
        error_line(PassFailed("fold-pad (apply): x"))
        == "internal error in pass fold-pad (apply): x"
    )


def test_a_refusal_passes_as_it_is() -> None:
    with pytest.raises(UnsupportedModel) as found, on("node 'a' (Add)"):
        raise UnsupportedModel("no")
    assert not hasattr(found.value, "__notes__")


def test_the_file_holds_what_was_done_and_all_frames() -> None:
    text = written(mistaken(), {"model": "net.onnx", "batch": 2, "calibration": None})
    assert text.splitlines()[:4] == [error_line(mistaken()), "", "model: net.onnx", "batch: 2"]
    for part in ("archgen: ", "python: 3.", "Traceback", "in static_shape", "on node 'a' (Add)"):
        assert part in text
    assert "calibration" not in text


def test_garbage_is_collected_as_before_once_a_program_is_compiled() -> None:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    try:
        with pytest.raises(KeyError), collecting_rarely():
            assert gc.get_threshold()[0] > 100_000
            raise KeyError
        assert gc.get_threshold() == (700, 10, 10)
    finally:
        gc.set_threshold(*before)


def test_mistakes_of_another_process_stay_whole() -> None:
    wrong = Mistake(FilePosition("a.yaml", 2, 1), "clock", "is odd")
    for given in (ArchError([wrong]), StudyError(["two words"]), OptionError(["one", "two"])):
        assert str(pickle.loads(pickle.dumps(given))) == str(given)
