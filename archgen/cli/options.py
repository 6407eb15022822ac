"""Options that several verbs share, and the parsing of their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

import click

from archgen.lint import RULES
from archgen.models.extents import Extents, SizeRange, extents
from archgen.schema.tree import guess
from archgen.schema.variants import factor_of
from simmodel.arch.base import ElementType
from simmodel.arch.units import parse_bytes

DTYPES = get_args(ElementType)
Verb = TypeVar("Verb", bound=Callable[..., Any])


class Batches(click.ParamType[tuple[int, ...]]):
    """`1,4,16`: one or more positive whole numbers."""

    name = "batches"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers, in the order given."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        wrong = [part for part in parts if not (part.isascii() and part.isdigit() and int(part))]
        if wrong:
            shown = ", ".join(repr(part) for part in wrong)
            self.fail(f"{shown}: expected positive whole numbers such as 1,4,16", param, ctx)
        return tuple(int(part) for part in parts)


class NamesParam(click.ParamType[tuple[str, ...]]):
    """`none,optimal`: names separated by commas; the verb knows which there are."""

    name = "names"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The names, in the order given."""
        if isinstance(value, tuple):
            return value
        return tuple(part.strip() for part in str(value).split(","))


class Size(click.ParamType[int]):
    """`8GiB`: a number of bytes."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The bytes."""
        try:
            return parse_bytes(value)
        except ValueError as mistake:
            self.fail(str(mistake), param, ctx)


class FactorParam(click.ParamType[float]):
    """`10%`, `1.5x`: how many times as large a field becomes."""

    name = "step"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The factor."""
        try:
            return value if isinstance(value, float) else factor_of(str(value))
        except ValueError as mistake:
            self.fail(str(mistake), param, ctx)


def _dimension(given: str, ranges: bool) -> tuple[str, Extents]:
    """Name and sizes of `name=value` or `name=value,value`; with `ranges` also of
    `name=low..high`. Raises ValueError."""
    name, equals, sizes = given.rpartition("=")
    if not name or not equals:
        raise ValueError(f"{given!r}: expected name=value, such as sequence=128")
    try:
        return name, extents(sizes, ranges)
    except ValueError as mistake:
        raise ValueError(f"{name}={mistake}") from None


def seconds_of(
    context: click.Context, option: click.Parameter, value: float | None
) -> float | None:
    """`value`, which has to be a number: no time is past a deadline that is none."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number of seconds.")
    return value


def as_extents(pairs: Sequence[tuple[str, Extents]]) -> dict[str, Extents]:
    """Sizes by name; ClickException for a name that is given twice, with different sizes."""
    dims: dict[str, Extents] = {}
    mistakes = []
    for name, sizes in pairs:
        if dims.setdefault(name, sizes) != sizes:
            both = f"{dims[name]} and {sizes}"
            way = f"several sizes go by commas: --dim {name}={dims[name]},{sizes}"
            mistakes.append(f"--dim {name} is given twice: {both}; {way}")
    if mistakes:
        raise click.UsageError("\n".join(mistakes))
    return dims


def as_dims(pairs: Sequence[tuple[str, Extents]]) -> dict[str, int]:
    """The size by name; ClickException for a name that is given several."""
    return as_shape(pairs)[0]


def as_shape(pairs: Sequence[tuple[str, Extents]]) -> tuple[dict[str, int], dict[str, SizeRange]]:
    """The size or the range by name; ClickException for a name that is given several."""
    dims: dict[str, int] = {}
    ranges: dict[str, SizeRange] = {}
    for name, sizes in as_extents(pairs).items():
        only = sizes.only
        if only is None:
            first = next(iter((*sizes.values, *sizes.ranges)))
            way = f"give one here, such as {name}={first}; `archgen study` compares them"
            raise click.UsageError(f"--dim {name}={sizes}: these are several sizes; {way}")
        if isinstance(only, SizeRange):
            ranges[name] = only
        else:
            dims[name] = only
    return dims, ranges


def dim_option(several: str = "", ranges: bool = False) -> Callable[[Verb], Verb]:
    """--dim, with what the verb does with `several` sizes, and whether it takes `ranges`."""
    said = f"Size of a free input dimension{several}. May be repeated."

    def read(
        context: click.Context, option: click.Parameter, values: Sequence[str]
    ) -> tuple[tuple[str, Extents], ...]:
        found, mistakes = [], []
        for value in values:
            try:
                found.append(_dimension(value, ranges))
            except ValueError as mistake:
                mistakes.append(str(mistake))
        if mistakes:
            raise click.BadParameter("\n  ".join(mistakes), context, option)
        return tuple(found)

    return click.option(
        "--dim", "dims", multiple=True, metavar="NAME=VALUE", callback=read, help=said
    )


class PortPlace(click.ParamType[tuple[str, int]]):
    """`name=address`: where a port shall lie; the program knows which ports there are."""

    name = "name=address"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Name and address, in decimal or with 0x."""
        if isinstance(value, tuple):
            return str(value[0]), int(value[1])
        name, _, address = str(value).rpartition("=")
        try:
            found = int(address, 0)
        except ValueError:
            found = -1
        if not name or found < 0:
            said = f"{value!r}: expected name=address, such as x=0x80000000 or x=4096"
            self.fail(said, param, ctx)
        return name, found


def _once_each(
    ctx: click.Context, param: click.Parameter, places: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, int], ...]:
    names = [name for name, _ in places]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise click.BadParameter(f"{', '.join(twice)}: expected one address", ctx, param)
    return places


place_option = click.option(
    "--place", "places", multiple=True, type=PortPlace(),
    callback=_once_each,
    help="Address in DRAM for an input or output, which is then verified there. May be repeated.",
)  # fmt: skip


class InputRole(click.ParamType[tuple[str, str]]):
    """`name=role`: what an input is; the model knows which inputs and roles there are."""

    name = "name=role"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Name and role."""
        if isinstance(value, tuple):
            return str(value[0]), str(value[1])
        name, equals, role = str(value).rpartition("=")
        if not name or not equals or not role:
            self.fail(
                f"{value!r}: expected name=role, such as cache=state or x=batch:1", param, ctx
            )
        return name, role


def as_roles(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Roles by input; ClickException for an input that is given two different ones."""
    roles: dict[str, str] = {}
    for name, role in pairs:
        if roles.setdefault(name, role) != role:
            raise click.UsageError(f"--role {name} is given twice: {roles[name]} and {role}")
    return roles


role_option = click.option(
    "--role",
    "roles",
    multiple=True,
    type=InputRole(),
    help="What an input is: batch:AXIS, data, state, index, mask or parameter; state::OUTPUT says "
    "which output it is in the next inference.",
)
set_option = click.option(
    "--set", "values", multiple=True, metavar="NAME=VALUE",
    help="Make an input of an ONNX file a constant, where sizes depend on its value: a number or "
    "[2,3]. May be repeated; -m net.onnx:NAME=VALUE says the same.",
)  # fmt: skip
dtype_option = click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="Element type of the network [default: the architecture's first].",
)
extension_option = click.option(
    "--extension",
    "extensions",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Python file that registers operators, functions or passes, or the name of an "
    "installed one. May be repeated.",
)
calibration_option = click.option(
    "--calibration",
    type=click.Path(dir_okay=False),
    help="Samples for int8 quantization: .npz with one array per input [default: seeded noise].",
)
host_option = click.option(
    "--host/--no-host", default=True, help="Whether operators may be left to the host processor."
)


# `--ignore RULE` of the verbs that hold machines against what can be built and fed.


def _rules(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> list[str]:
    """Names of rules, several separated by commas; unknown ones are refused together."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    wrong = [f"{name!r}{guess(name, RULES)}" for name in names if name not in RULES]
    if wrong:
        known = "`archgen explain lint` lists all"
        raise click.BadParameter(f"no rule is called {', nor '.join(wrong)}; {known}")
    return names


ignore_option = click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="RULE",
    callback=_rules,
    help="Leave a rule of `archgen lint` out; may be repeated, or several separated by commas.",
)
