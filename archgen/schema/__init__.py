"""Architecture files: YAML text in, a checked `Arch` or every mistake at once out.

Reading goes through three steps, one module each: `source` (text to a tree that remembers
positions), `record` (the tree against the schema), `load` (all of it, for families, files, patterns
and shipped names).
"""

from archgen.schema.load import load_arch, load_archs, shipped_names
from archgen.schema.tree import ArchError, Mistake

__all__ = ["ArchError", "Mistake", "load_arch", "load_archs", "shipped_names"]
