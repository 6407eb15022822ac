"""Pages of the documentation as blocks that are run in order, and parts that are generated.

The one idea: a reader who types a page from top to bottom gets what the page says. Blocks of `sh`
and `python` are run, `yaml` blocks are files. A word behind a block's language, which no reader
sees, says what the page itself says in words:

    yaml file: my.yaml     the block is the content of this file
    sh exit: 2             the command fails, with this code
    text output            what the block before printed: words are compared, figures are not
    sh skip                takes too long, or more than a test has

What stands between `<!-- generated: archgen ... -->` and `<!-- end -->` is what that prints.
`python tests/docs/pages.py` writes generated parts and outputs anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from warm import commands

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = ("archs", "studies", "tests")
"""Folders of the repository that commands of the pages name."""
TIMEOUT = 1200
"""Seconds for a block; what hangs ends, and what a busy machine delays does not."""
_BLOCK = re.compile(
    r"^```(?P<language>\w*)(?: (?P<mark>\w+)(?:: (?P<value>[^\n]*))?)?\n(?P<text>.*?)^```$",
    re.M | re.S,
)
_GENERATED = re.compile(r"(<!-- generated: (.*?) -->\n).*?(<!-- end -->)", re.S)
_ALONE = "from archgen.cli.main import cli; cli()"
"""In a process of its own: Click keeps the help of a command as it was first asked for."""
_PROGRESS = re.compile(r"^\d+ of \d+ points, .* left\n", re.M)
"""Said where points take long, so on some machines only."""
_FIGURE = re.compile(r"[-+]?\d[\d,.]*(e[-+]?\d+)?")


class WrongPage(AssertionError):
    """A block that does not do what its page says."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    mark: str
    value: str
    start: int
    """Where its text begins in the page."""

    def wrong(self, said: str) -> WrongPage:
        """An error that names this block."""
        return WrongPage(f"{self.page.relative_to(ROOT)}:{self.line}: {said}")


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of `page`, top to bottom."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("text")),
            found["language"],
            found["text"],
            found["mark"] or "",
            found["value"] or "",
            found.start("text"),
        )
        for found in _BLOCK.finditer(text)
    ]


@dataclass
class Reader:
    """Follows one page in `folder`; `printed` is what the last block has printed."""

    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    printed: str = ""

    def follow(self, block: Block) -> None:
        """Do what `block` says; raises WrongPage where that is not what happens."""
        if block.mark == "skip":
            return
        if block.mark == "file":
            target = self.folder / block.value
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.mark == "output":
            self._compare(block)
        elif block.language == "sh":
            self._shell(block)
        elif block.language == "python":
            self._python(block)
        elif block.language not in ("text", ""):
            raise block.wrong(f"a block of {block.language} that is neither run nor a file")

    def _shell(self, block: Block) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        self.printed = done.stdout + _PROGRESS.sub("", done.stderr)
        expected = int(block.value) if block.mark == "exit" else 0
        if done.returncode != expected:
            raise block.wrong(f"exit code {done.returncode}, not {expected}\n{self.printed}")

    def _python(self, block: Block) -> None:
        printed = StringIO()
        code = compile("\n" * block.line + block.text, str(block.page), "exec")
        with redirect_stdout(printed):
            exec(code, self.names)
        self.printed = printed.getvalue()

    def _compare(self, block: Block) -> None:
        lines = [_words(line) for line in self.printed.splitlines()]
        for line in block.text.splitlines():
            if line.strip() != "..." and _words(line) not in lines:
                raise block.wrong(f"nothing like {line!r} was printed:\n{self.printed}")


def _words(line: str) -> str:
    """`line` without what may differ from run to run: figures, and blanks that align them."""
    return " ".join(_FIGURE.sub("0", line).replace("─", "").split())


def prepare(folder: Path) -> None:
    """Make `folder` what the pages call this folder."""
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)


def environment(warm: Path) -> dict[str, str]:
    """Variables under which pages are followed: commands in `warm`, then this Python's, a cache
    that pages share, and a width at which their tables fold no names."""
    scripts = str(Path(sys.executable).parent)
    return {
        "PATH": os.pathsep.join((str(warm), scripts, os.environ["PATH"])),
        "ARCHGEN_CACHE": str(warm / "cache"),
        "COLUMNS": "110",
    }


def generated(page: Path) -> str:
    """The text of `page` with every generated part as its command prints it now."""

    def filled(found: re.Match[str]) -> str:
        words = [sys.executable, "-c", _ALONE, *found[2].split()[1:]]
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT)
        if done.returncode != 0:
            raise WrongPage(f"{page.name}: {found[2]}: {done.stdout}{done.stderr}")
        return f"{found[1]}\n{done.stdout.strip()}\n\n{found[3]}"

    return _GENERATED.sub(filled, page.read_text(encoding="utf-8"))


def update(page: Path, warm: Path) -> None:
    """Write generated parts and outputs of `page` anew."""
    text = generated(page)
    page.write_text(text, encoding="utf-8")
    if not any(block.mark == "output" for block in blocks(page)):
        return
    with TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        os.environ.update(environment(warm))
        os.chdir(folder)
        for start, end, new in reversed(list(_outputs(Reader(folder), page))):
            text = text[:start] + new + text[end:]
        page.write_text(text, encoding="utf-8")
        os.chdir(ROOT)


def _outputs(reader: Reader, page: Path) -> Iterator[tuple[int, int, str]]:
    """Where outputs stand in `page`, and what is printed now; an output with `...` is left."""
    for block in blocks(page):
        if block.mark == "output" and "..." not in block.text:
            lines = (line.rstrip() for line in reader.printed.splitlines())
            text = "\n".join(lines).strip("\n") + "\n"
            yield block.start, block.start + len(block.text), text
        else:
            reader.follow(block)


if __name__ == "__main__":
    wanted = [Path(name).resolve() for name in sys.argv[1:]] or PAGES
    with commands() as warm:
        for each in wanted:
            update(each, warm)
