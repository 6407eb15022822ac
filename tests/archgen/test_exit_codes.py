"""Exit codes as the README says them: 0 an answer, 1 none or a bad one, 2 wrong input, in words."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from host_only import small_model

from archgen.cli.main import main
from archgen.schema.load import load_files, locate
from archgen.studies.design import StudyError
from archgen.studies.plan import load_study

pytestmark = pytest.mark.usefixtures("own_cache")

Ran = Callable[..., tuple[int, str]]
STUDY = """
archs:
  - soma-edge
  - extends: mcu-npu
    sweep: {memories.local.size: [256 KiB, 512 KiB]}
models: ["squeezenet:image=32", {model: "resnet18:image=32", batches: [1, 2]}]
batches: [1]
compiler: {fusion: [none, optimal], effort: 0, passes: {keep.share: 0.5}}
skip: [{arch: "soma*", batch: 2}]
timeout: 30
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ran:
    """The exit code of a command in an empty folder, and all it printed."""
    monkeypatch.chdir(tmp_path)
    small_model(tmp_path / "small.onnx")
    (tmp_path / "noise.onnx").write_bytes(random.Random(1).randbytes(400))
    (tmp_path / "noise.yaml").write_bytes(random.Random(2).randbytes(400))
    (tmp_path / "wrong.yaml").write_text("name: wrong\nclock: fast\n")
    (tmp_path / "study.yaml").write_text("archs: nowhere\nmodels: resnet51\n")
    tiny = "extends: mcu-npu\nname: tiny\nmemories: {dram: {size: 64 B}}\n"
    (tmp_path / "tiny.yaml").write_text(tiny)
    (tmp_path / "broken.py").write_text("1 +")
    (tmp_path / "file").write_text("")

    def ran(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["archgen", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        said = capfd.readouterr()
        return int(end.value.code or 0), said.out + said.err

    return ran


@pytest.mark.parametrize(
    "command",
    [
        "check nowhere.yaml", "check noise.yaml", "check wrong.yaml", "check", "study soma-edge",
        "study soma-edge -m noise.onnx", "study soma-edge -m small.onnx --calibration no.npz",
        "study soma-edge -m small.onnx --extension broken.py",
        "study soma-edge -m small.onnx --executor nobody",
        "study soma-edge -m small.onnx --jobs 2 --memory 1MiB",
        "study soma-edge -m small.onnx --timeout 0", "study soma-edge -m small.onnx --out file",
        "study nowhere.yaml -m resnet51 -m no.onnx -o out",
        "study wrong.yaml -m small.onnx", "study noise.yaml -m small.onnx", "study study.yaml",
        "explore nowhere.yaml", "explore study.yaml", "explore noise.yaml",
        "sensitivity study.yaml", "sensitivity noise.yaml", "report nowhere", "report file",
        "results nowhere", "results file", "compare nowhere elsewhere", "compile",
        "compile soma-edge -m noise.onnx", "compile wrong.yaml -m small.onnx",
        "compile soma-edge -m small.onnx --fusion odd",
        "compile soma-edge -m small.onnx --timeout nan",
        "compile soma-edge -m small.onnx --extension broken.py",
        "compile soma-edge -m small.onnx -o no/where.asm", "models noise.onnx", "models nothing",
        "explain nothing", "schema --odd", "nothing",
    ],
)  # fmt: skip
def test_wrong_input_is_exit_code_2_in_words(run: Ran, command: str) -> None:
    code, said = run(*command.split())
    assert code == 2, said
    assert "Traceback" not in said and "internal error" not in said
    assert said.strip() and not Path("out").exists()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("study mcu-npu -m small.onnx --effort 0 --no-plots --executor here", 0),
        ("compile mcu-npu -m small.onnx --effort 0 -o net.asm", 0),
        ("compile tiny.yaml -m small.onnx --effort 0", 1),
        ("check mcu-npu", 0),
        ("models small.onnx", 0),
        ("study study.yaml --help", 0),
    ],
)
def test_answers_are_exit_code_0_and_none_is_1(run: Ran, command: str, code: int) -> None:
    found, said = run(*command.split())
    assert found == code, said
    assert "Traceback" not in said


def mutated(text: str, chance: random.Random) -> bytes:
    """`text` with a few mistakes of one kind or another."""
    marks = (b"{", b"]", b": ", b"\n  ", b"&a ", b"*a", b"!!int ", b"-")
    data = bytearray(text.encode())
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data))
        end = min(len(data), at + chance.randint(1, 30))
        kind = chance.randrange(6)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:at] = data[at:end]
        elif kind == 3:
            data[at:at] = chance.choice(marks)
        elif kind == 4:
            words = data.split(b" ")
            words[chance.randrange(len(words))] = chance.choice(
                [b"null", b"-1", b"1e400", b"[]", b"{}", b"true", b"NaN", b"9" * 40, b"'x'"]
            )
            data = bytearray(b" ".join(words))
        else:
            lines = data.split(b"\n")
            chance.shuffle(lines)
            data = bytearray(b"\n".join(lines))
    return bytes(data)


def test_mutated_study_files_are_read_or_refused_in_words(tmp_path: Path) -> None:
    path, chance, refused = tmp_path / "study.yaml", random.Random(3), 0
    for _ in range(150):
        path.write_bytes(mutated(STUDY, chance))
        try:
            load_study(path)
        except StudyError as mistake:
            assert mistake.mistakes
            refused += 1
    assert 75 < refused < 150


def test_mutated_architectures_are_read_or_refused_in_words(tmp_path: Path) -> None:
    text, chance, refused = locate("mcu-npu")[0].read_text(encoding="utf-8"), random.Random(4), 0
    path = tmp_path / "machine.yaml"
    for _ in range(150):
        path.write_bytes(mutated(text, chance))
        _, mistakes = load_files([str(path)])
        refused += bool(mistakes)
    assert 50 < refused < 150
