"""archgen: describe an accelerator in YAML, compile a network for it, simulate, check, compare.

Public names are imported when they are first used, so `import archgen` takes milliseconds; they
are defined in `archgen.api`, and `__init__.pyi` gives their types.
"""

import sys
from importlib import import_module


def __getattr__(name: str) -> object:
    """A public name, from `archgen.api`; `__all__`: their list."""
    imported = f"{__name__}.{name}" in sys.modules  # a package of archgen, not yet to its end
    if name == "__all__" or not (name.startswith("_") or imported):
        public = import_module("archgen.api")
        if name == "__all__" or name in public.__all__:
            value: object = getattr(public, name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'archgen' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Public names and what is loaded."""
    return sorted({*globals(), *import_module("archgen.api").__all__})
