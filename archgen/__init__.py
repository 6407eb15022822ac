"""archgen: describe an accelerator in YAML, compile a network for it, simulate, check, compare.

Public names are imported when they are first used, so `import archgen` takes milliseconds; they
are defined in `archgen.api`, and `__init__.pyi` gives their types.
"""

from importlib import import_module

__all__ = [
    "Arch",
    "AssemblyError",
    "Loaded",
    "Metrics",
    "Program",
    "Running",
    "SourceFamily",
    "SourceModel",
    "Study",
    "StudyComparison",
    "StudyError",
    "StudyOptions",
    "Trace",
    "codes",
    "commands",
    "compare",
    "compile_model",
    "estimate",
    "execute",
    "explore",
    "load",
    "load_arch",
    "load_family",
    "load_model",
    "measure",
    "open_study",
    "read_assembly",
    "save",
    "sensitivity",
    "simulate",
    "smallest_machine",
    "states",
    "study",
    "write_assembly",
]


def __getattr__(name: str) -> object:
    """A public name, from `archgen.api`."""
    if name not in __all__:
        raise AttributeError(f"module 'archgen' has no attribute {name!r}")
    value: object = getattr(import_module("archgen.api"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names and what is loaded."""
    return sorted({*globals(), *__all__})
