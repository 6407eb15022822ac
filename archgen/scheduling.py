"""How the compiler is to schedule: what a user may choose, checked, and as the compiler's stages.

The one idea: these choices are part of a point like its model and machine, so a study compares
them as it compares machines: a row for each, and columns that say which.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from itertools import product
from typing import Any, TypedDict, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from archgen.schema.json_schema import View
from archgen.schema.tree import guess, listed
from compiler import api
from compiler.api import pass_name
from simmodel.errors import SeveralMistakes

# Any option of any compiler pass by its dotted name: `keep.share`, `fold_constants.limit`.

Scalar = str | int | float | bool | None
Settings = tuple[tuple[str, Scalar], ...]
"""Dotted option -> value, sorted."""

_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
_SIMPLE = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class PassOptionField:
    """One option of a pass that one value can set."""

    holder: type
    """The class with the field."""
    field: str
    value: Scalar
    """What it is."""
    wanted: Any
    """Its type, with its range."""

    @property
    def takes(self) -> str:
        """What it may be, in words."""
        view = View(TypeAdapter(self.wanted).json_schema())
        return view.expected(view.root)

    def fits(self, value: object) -> bool:
        """Whether it may be `value`, which is of its type and not just like it."""
        try:
            TypeAdapter(self.wanted, config=_STRICT).validate_python(value)
        except ValidationError:
            return False
        return True


def options(stages: api.Stages) -> dict[str, PassOptionField]:
    """Every option of the passes in `stages`, by dotted name."""
    found: dict[str, PassOptionField] = {}
    for prefix, holder in passes_by_prefix(stages):
        found |= _nested_options(f"{prefix}.", holder)
    return found


def passes_by_prefix(stages: api.Stages) -> Iterator[tuple[str, Any]]:
    """The passes of `stages` in order, each kind once, with the word before its options."""
    for known in fields(stages):
        value = getattr(stages, known.name)
        if not isinstance(value, tuple):
            yield known.name, value
            continue
        first = {type(step): step for step in reversed(value)}
        for kind in dict.fromkeys(map(type, value)):
            yield _option_prefix(first[kind]), first[kind]


def _option_prefix(step: object) -> str:
    return pass_name(type(step)).replace("-", "_")


def _nested_options(prefix: str, holder: Any) -> Iterator[tuple[str, PassOptionField]]:
    wanted = _types(type(holder))
    for known in fields(holder):
        value, name = getattr(holder, known.name), f"{prefix}{known.name}"
        if is_dataclass(value):
            yield from _nested_options(f"{name}.", value)
        elif isinstance(value, _SIMPLE):
            kind = wanted.get(known.name, type(value))
            yield name, PassOptionField(type(holder), known.name, value, kind)


def _types(holder: type) -> Mapping[str, Any]:
    """Types of fields; none where the class is of an extension, which is no module to look into."""
    known = holder.__module__ in sys.modules
    return get_type_hints(holder, include_extras=True) if known else {}


def combinations_of(passes: Mapping[str, Any]) -> Iterator[Settings]:
    """Every combination of the values of options, each one value or a list."""
    lists = [value if isinstance(value, list) else [value] for value in passes.values()]
    for values in product(*lists):
        yield tuple(sorted(zip(passes, values, strict=True)))


def wrong(settings: Mapping[str, object], stages: api.Stages) -> list[str]:
    """What is wrong with settings of these passes: unknown names, values of another type or out of
    range."""
    known = options(stages)
    found = []
    for name, value in settings.items():
        if name not in known:
            hint = guess(name, known) or "; `archgen explain passes` lists them"
            found.append(f"pass option {name!r}: no such option{hint}")
        elif not known[name].fits(value):
            found.append(f"pass option {name!r}: expected {known[name].takes}, got {value!r}")
    return found


def with_pass_options(stages: api.Stages, settings: Settings) -> api.Stages:
    """`stages` with these options; an option that the chosen strategy does not have is left out."""
    known = options(stages) if settings else {}
    for name, value in settings:
        if name in known:
            stages = _set(stages, name.split("."), value)
    return stages


def _set(stages: api.Stages, path: list[str], value: Scalar) -> api.Stages:
    """`stages` with one option set, of a stage or of all passes of a name in a row of passes."""
    if any(path[0] == known.name for known in fields(stages)):
        made: api.Stages = _replace_field(stages, path, value)
        return made
    rows: dict[str, Any] = {
        known.name: tuple(
            _replace_field(step, path[1:], value) if _option_prefix(step) == path[0] else step
            for step in row
        )
        for known in fields(stages)
        if isinstance(row := getattr(stages, known.name), tuple)
    }
    return replace(stages, **rows)


def _replace_field(holder: Any, path: list[str], value: Scalar) -> Any:
    name, *below = path
    made = _replace_field(getattr(holder, name), below, value) if below else value
    return replace(holder, **{name: made})


class OptionError(SeveralMistakes):
    """Choices that are none; `mistakes` holds all of them."""


@dataclass(frozen=True)
class Scheduling:
    """One choice of everything; `choices` checks them."""

    fusion: str = "optimal"
    """How layers are partitioned into groups: a name of `STRATEGIES`."""
    halo: str = "auto"
    """A name of `HALOS`."""
    objective: str = "latency"
    """A name of `OBJECTIVES`."""
    effort: int = 1
    """One of `EFFORTS`."""
    passes: Settings = ()
    """Options of passes, as `archgen.scheduling` names them."""
    tree: api.Tree | None = None
    """A schedule to follow; what it leaves open is searched for."""

    @property
    def columns(self) -> dict[str, str | int | float | bool | None]:
        """The choices by name of their column."""
        made = asdict(replace(self, tree=None))
        made.pop("passes")
        made.pop("tree")
        return made | {f"pass.{name}": value for name, value in self.passes}

    @property
    def stages(self) -> api.Stages:
        """The compiler's passes with these options."""
        stages = api.stages_of(self.fusion, self.halo, self.objective, self.effort)
        return with_pass_options(stages, self.passes)

    @property
    def alternatives(self) -> tuple[api.Stages, ...]:
        """Other ways to compile among which a simulation decides, with these options of passes."""
        if self.tree is not None:
            return ()
        return tuple(
            with_pass_options(way, self.passes)
            for way in api.alternatives(self.effort, self.stages)
        )


DEFAULT = Scheduling()


def choices(
    fusion: Sequence[str] = (DEFAULT.fusion,), halo: Sequence[str] = (DEFAULT.halo,),
    objective: Sequence[str] = (DEFAULT.objective,), effort: Sequence[int] = (DEFAULT.effort,),
    passes: Sequence[Settings] = ((),),
) -> tuple[list[Scheduling], list[str]]:  # fmt: skip
    """Every combination of the values given, each once, and what is wrong with them."""
    mistakes = [
        *_unknown("fusion", fusion, api.STRATEGIES),
        *_unknown("halo", halo, api.HALOS),
        *_unknown("objective", objective, api.OBJECTIVES),
        *_unknown("effort", effort, api.EFFORTS),
    ]
    if mistakes:  # wrong options of passes are those that no strategy would take
        ways = product(api.STRATEGIES, passes)
        some = [Scheduling(fusion=name, passes=settings) for name, settings in ways]
        return [], [*mistakes, *_no_options(some)]
    words = product(dict.fromkeys(fusion), dict.fromkeys(halo), dict.fromkeys(objective))
    found = [
        Scheduling(*each, level, settings)
        for each in words
        for level in dict.fromkeys(effort)
        for settings in dict.fromkeys(passes)
    ]
    return found, _no_options(found)


def _no_options(ways: Sequence[Scheduling]) -> list[str]:
    """What is wrong with options of passes: what none of the ways that set it can take."""
    found: dict[tuple[str, Scalar], list[list[str]]] = {}
    for way in ways:
        for name, value in way.passes:
            found.setdefault((name, value), []).append(wrong({name: value}, way.stages))
    return [said[0][0] for said in found.values() if all(said)]


class Choices(TypedDict, total=False):
    """One choice of a schedule as keywords of a call: fields of `Scheduling` without `passes`."""

    fusion: str
    halo: str
    objective: str
    effort: int


def choice(
    fusion: str = DEFAULT.fusion, halo: str = DEFAULT.halo, objective: str = DEFAULT.objective,
    effort: int = DEFAULT.effort, **others: object,
) -> Scheduling:  # fmt: skip
    """One combination; OptionError with every mistake, and `others`, of which there are none."""
    found, mistakes = choices([fusion], [halo], [objective], [effort])
    known = ("fusion", "halo", "objective", "effort")
    mistakes += [f"{name}: there is no such choice{guess(name, known)}" for name in others]
    if mistakes:
        raise OptionError(mistakes)
    return found[0]


def _unknown(what: str, given: Sequence[object], known: Iterable[object]) -> list[str]:
    values = {str(value): value for value in known}
    wrong = [value for value in dict.fromkeys(given) if value not in values.values()]
    found = [f"{what} {value!r}: {_expected(value, values)}" for value in wrong]
    return found if given else [f"no {what} given"]


def _expected(value: object, known: Mapping[str, object]) -> str:
    """What `value`, which is none of those `known` by their text, should have been."""
    if value in known:
        return f"expected the number {value}, got text"
    return f"must be {listed(known.values())}{guess(str(value), known)}"
