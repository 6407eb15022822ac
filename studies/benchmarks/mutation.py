"""Mutants of cost and search: one operator, constant or choice is changed, and tests must notice.

    python studies/benchmarks/mutation.py --mutants 100 --seed 1 --jobs 2

The one idea: a test that nothing can fail pins nothing. A mutant is one small change of one place
in the modules that decide schedules, made in a copy of the checkout; the tests are run on it until
one fails, the quickest first: a few replayed programs, the tests that are named after the module or
its package, then all tests of decisions and the whole table of programs (`--quick`: without these;
so more of them survive, in a quarter of the time). Printed are the mutants that no test has seen,
as the line was and as it is; some of them mean the same as before, and a reader has to say which.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Queue

import pytest

ROOT = Path(__file__).parents[2]
CARRIED = ("archgen", "archs", "compiler", "simmodel", "studies", "tests", "pyproject.toml")
"""What a copy of the checkout consists of."""
DECIDING = (
    "compiler/cost", "compiler/target", "compiler/geometry", "compiler/schedule/residency",
    "compiler/schedule/tiling", "compiler/schedule/fusion", "compiler/plan", "compiler/memory",
)  # fmt: skip
"""Modules and packages whose mutants are made."""
FIRST = tuple(
    f"tests/compiler/test_replay.py::test_a_program_is_that_of_the_table[{program}]"
    for program in (
        "soma-edge-residual-int8", "cocco-simba-2c-attention-int8", "gemmini-16-pyramid-int8",
        "neuroncore-v2-like-classifier-bf16", "stcp920-joined-fp16",
        "cocco-simba-4c-depthwise-int8",
    )
)  # fmt: skip
"""Programs that notice most mutants at once: every network, machines of every kind."""
THOROUGH = (
    "tests/compiler/test_tile_search.py", "tests/compiler/test_cost_transfer.py",
    "tests/compiler/test_residency.py", "tests/compiler/test_tile_trace.py",
    "tests/compiler/test_fuse_partition.py", "tests/compiler/test_alloc_pack.py",
    "tests/compiler/test_alloc_places.py", "tests/compiler/test_fallback.py",
    "tests/compiler/test_shared_residency.py",
    "tests/compiler/test_tree.py", "tests/compiler/test_closed_forms.py",
    "tests/compiler/test_replay.py",
)  # fmt: skip
"""Tests of what is mutated, for mutants that the others leave."""
LIMIT = 900
"""Seconds after which a mutant counts as noticed: it hangs."""
IMPORTED = ("numpy", "onnx", "onnxruntime", "onnx_ir", "pydantic", "pytest", "hypothesis", "simpy")
"""What every run of tests imports and no mutant changes: once for all of them."""
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(list(IMPORTED))
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
_TWINS = {"min": "max", "max": "min", "maximum": "minimum", "minimum": "maximum",
          "any": "all", "all": "any"}  # fmt: skip
_SILENT = (ast.Raise, ast.JoinedStr, ast.Assert)
"""Parts of the code of which no program depends."""


@dataclass(frozen=True)
class Mutant:
    """A module with one place changed."""

    path: str
    line: int
    before: str
    after: str
    """Whole source of the module."""

    def __str__(self) -> str:
        old, new = self.before.splitlines(), self.after.splitlines()
        changed = difflib.unified_diff(old, new, lineterm="", n=0)
        lines = [line for line in changed if line[:3] not in ("---", "+++") and line[:2] != "@@"]
        return "\n".join((f"{self.path}:{self.line}", *lines))


def mutants(rng: random.Random) -> Iterator[Mutant]:
    """Without end, each place with the same chance."""
    sources = {path: path.read_text() for path in _modules()}
    places = [(path, *each) for path, text in sources.items() for each in _places(text)]
    rng.shuffle(places)
    for path, node, changed in places:
        text = sources[path]
        yield Mutant(str(path.relative_to(ROOT)), node.lineno, text, _replaced(text, node, changed))


def _modules() -> Iterator[Path]:
    for name in DECIDING:
        path = ROOT / name
        yield from [path] if path.is_file() else sorted(path.glob("*.py"))


def _places(text: str) -> Iterator[tuple[ast.expr, str]]:
    """Expressions of a module, each with another in its place."""
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.expr):
            yield from ((node, changed) for changed in _changes(node))
        waiting += _parts(node)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """What is below a node and may matter: no annotations, decorators and messages."""
    if isinstance(node, ast.keyword) and node.arg == "strict":  # a check, which never fails
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST) and not isinstance(part, _SILENT):
                yield part


def _changes(node: ast.expr) -> Iterator[str]:
    """What may stand in the place of an expression."""
    match node:
        case ast.Compare(ops=[op], comparators=[right]) if type(op) in _SWAPS:
            yield _text(ast.Compare(node.left, [_SWAPS[type(op)]()], [right]))  # type: ignore[list-item]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SWAPS:
            yield _text(ast.BinOp(left, _SWAPS[type(op)](), right))  # type: ignore[arg-type]
        case ast.BoolOp(op=op, values=values):
            yield _text(ast.BoolOp(_SWAPS[type(op)](), values))  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _text(operand)
        case ast.IfExp(test=test, body=body, orelse=other):
            yield _text(ast.IfExp(test, other, body))
        case ast.Constant(value=bool() as flag):
            yield repr(not flag)
        case ast.Constant(value=int() as number):
            yield repr(number + 1)
        case ast.Constant(value=float() as number):
            yield repr(2 * number or 1.0)
        case ast.Name(id=name) if name in _TWINS:
            yield _TWINS[name]
        case ast.Attribute(attr=name, value=value) if name in _TWINS:
            yield _text(ast.Attribute(value, _TWINS[name]))


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def _replaced(text: str, node: ast.expr, changed: str) -> str:
    """`text` with `changed` where `node` stands."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    first, last = node.lineno - 1, node.end_lineno - 1
    head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    lines[first : last + 1] = [head + changed.encode() + tail]
    return b"".join(lines).decode()


def noticed(mutant: Mutant, copies: Queue[Path], quick: bool = False) -> bool:
    """Whether some test fails on a mutant."""
    copy = copies.get()
    try:
        target = copy / mutant.path
        target.write_text(mutant.after)
        steps = (FIRST, _named(mutant.path, copy), () if quick else THOROUGH)
        found = any(_fails(tests, copy) for tests in steps if tests)
        target.write_text(mutant.before)
        return found
    finally:
        copies.put(copy)


def _named(path: str, copy: Path) -> tuple[str, ...]:
    """Tests that are named after a module, or after its package."""
    folder = copy / "tests/compiler"
    names = Path(path).with_suffix("").parts[1:]
    wanted = (form.format(name) for name in names for form in ("test_{}*.py", "test_*_{}.py"))
    found = {test for form in wanted for test in folder.glob(form)}
    return tuple(str(test.relative_to(copy)) for test in sorted(found))


def _fails(tests: Sequence[str], copy: Path) -> bool:
    process = _SERVER.Process(target=_run, args=(tests, copy))
    process.start()
    process.join(LIMIT)
    process.kill()
    process.join()
    return process.exitcode != 0


def _run(tests: Sequence[str], copy: Path) -> None:
    """In a process of its own: the tests of a copy, until one fails."""
    os.chdir(copy)
    os.environ["ARCHGEN_CACHE"] = str(copy / "cache")
    sys.path.insert(0, str(copy))
    sys.dont_write_bytecode = True  # mutants of one second and size would be taken for each other
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]))


def copied(folder: Path) -> Path:
    """A copy of the checkout's sources and tests."""
    for name in CARRIED:
        path = ROOT / name
        if path.is_dir():
            unwanted = shutil.ignore_patterns("__pycache__", "*-out")
            shutil.copytree(path, folder / name, ignore=unwanted)
        else:
            shutil.copy(path, folder / name)
    return folder


def main() -> None:
    """Make mutants and print those that nobody has noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="numbers of mutants, as printed: 3,17")
    options = parser.parse_args()
    made = islice(mutants(random.Random(options.seed)), options.mutants)
    only = {int(number) for number in options.only.split(",") if number}
    chosen = {n: mutant for n, mutant in enumerate(made, 1) if not only or n in only}
    started, survivors = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as name:
        copies: Queue[Path] = Queue()
        for number in range(options.jobs):
            copies.put(copied(Path(name) / str(number)))
        if _fails(FIRST if options.quick else THOROUGH, copies.queue[0]):
            sys.exit("tests fail on the sources as they are")
        with ThreadPoolExecutor(options.jobs) as pool:
            ask = partial(noticed, copies=copies, quick=options.quick)
            verdicts = pool.map(ask, chosen.values())
            for (number, mutant), seen in zip(chosen.items(), verdicts, strict=True):
                survivors += not seen
                print(f"[{number}] {'noticed' if seen else 'SURVIVED'} {mutant}", flush=True)
    spent = time.monotonic() - started
    share = 1 - survivors / max(1, len(chosen))
    print(f"{len(chosen)} mutants, {survivors} not noticed: {share:.0%} in {spent:.0f} s")


if __name__ == "__main__":
    main()
