"""The plotting library that a page carries in itself.

The one idea: the page may be opened where there is no network, so it holds the whole library,
deflated and in base64, and its browser unpacks it. The package is looked up and never imported:
of it only the one file for browsers is needed.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path

_FILE = "plotly/package_data/plotly.min.js"
_END = "*/"


@dataclass(frozen=True)
class Bundle:
    """A library for browsers as a page holds it."""

    licence: str
    """What its authors want to be said with every copy."""
    packed: str
    """Its text in UTF-8, deflated (zlib), in base64."""


def bundle() -> Bundle:
    """The plotting library."""
    found = distribution("plotly")
    return _packed(Path(str(found.locate_file(_FILE))), _terms(found))


@cache
def _packed(path: Path, terms: str) -> Bundle:
    content = path.read_bytes()
    head, end, _ = content[:2000].decode("utf-8", "replace").partition(_END)
    said = "\n".join(line.strip("/* ") for line in head.splitlines()) if end else ""
    both = "\n\n".join(filter(None, (said.strip(), terms.strip())))
    return Bundle(both, b64encode(zlib.compress(content, 9)).decode("ascii"))


def _terms(found: Distribution) -> str:
    """The text of the licence that the package comes with."""
    texts = ("licenses/LICENSE.txt", "licenses/LICENSE", "LICENSE.txt", "LICENSE")
    return next(filter(None, map(found.read_text, texts)), "")
