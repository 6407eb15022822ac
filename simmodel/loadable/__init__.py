"""The loadable: a program as one file that runs alone, and back, the same program.

docs/loadable.md has every byte.
"""

from __future__ import annotations

from simmodel.loadable.program import MAGIC, Loadable, LoadableError, from_bytes, to_bytes

__all__ = ["MAGIC", "Loadable", "LoadableError", "from_bytes", "to_bytes"]
