"""Options that several verbs share, the parsing of their values, and their mistakes all at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from archgen.lint import RULES
from archgen.models.extents import Extents, SizeRange, extents
from archgen.schema.tree import attempted, guess
from simmodel.arch.units import parse_bytes

Verb = TypeVar("Verb", bound=Callable[..., Any])
Value = TypeVar("Value")
FILE = click.Path(dir_okay=False, path_type=Path)
_NETWORKS = "; options of a network go behind its name, as in -m resnet50:image=32"


class EveryMistake(click.Command):
    """A command that says of all its options at once what is wrong with them; one that `judges`
    the rest of its arguments is called all the same, and says both (`mistakes_of`)."""

    def __init__(self, *given: Any, judges: bool = False, **more: Any) -> None:
        super().__init__(*given, **more)
        self._judges = judges

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As any command does; UsageError with every mistake."""
        words = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as first:
            short = [] if first.option_name.startswith("--") else [first.format_message()]
            wrong = [*short, *self._unknown(words), *self._misread(ctx, words)]
        except click.BadParameter:
            wrong = [*self._misread(ctx, words)]
            if self._judges:
                ctx.meta[__name__] = wrong
                ctx.resilient_parsing = True  # what is wrong is None
                rest = super().parse_args(ctx, list(words))
                ctx.resilient_parsing = False
                return rest
        raise click.UsageError("\n".join(wrong), ctx)

    def _unknown(self, words: Sequence[str]) -> Iterator[str]:
        known = [name for param in self.params for name in (*param.opts, *param.secondary_opts)]
        hint = _NETWORKS if {"--model", "-m"} & set(known) else ""
        for name in (word.partition("=")[0] for word in words if word.startswith("--")):
            if name not in (*known, "--help", "--"):
                near = " or ".join(map(repr, get_close_matches(name, known)))
                yield f"No such option {name!r}{near and f'; did you mean {near}?'}{hint}"

    def _misread(self, ctx: click.Context, words: Sequence[str]) -> Iterator[str]:
        """What is wrong with the values of options that there are."""
        ctx.ignore_unknown_options = True
        given, rest, order = self.make_parser(ctx).parse_args(args=list(words))
        for param in click.core.iter_params_for_processing(order, self.get_params(ctx)):
            try:
                param.handle_parse_result(ctx, given, rest)
            except click.BadParameter as mistake:
                yield mistake.format_message()


def mistakes_of(context: click.Context) -> list[str]:
    """What is wrong with the options of a command that judges the rest of its arguments."""
    return list(context.meta.get(__name__, ()))


def combined_options(*options: Callable[[Verb], Verb]) -> Callable[[Verb], Verb]:
    """Adds `options`, in the order in which help lists them."""

    def add(verb: Verb) -> Verb:
        for option in reversed(options):
            verb = option(verb)
        return verb

    return add


Read = Callable[[click.Context, click.Parameter, Any], Any]


def parsed(parse: Callable[[str], object]) -> Read:
    """What `parse` makes of an option's text; its ValueError is what is wrong with it."""

    def read(context: click.Context, option: click.Parameter, value: Any) -> Any:
        try:
            return parse(value) if isinstance(value, str) else value
        except ValueError as mistake:
            raise click.BadParameter(str(mistake), context, option) from None

    return read


def each_parsed(parse: Callable[[str], Value], join: Callable[[list[Value]], object]) -> Read:
    """What `join` makes of what `parse` makes of each text of an option that may be repeated;
    their ValueErrors are what is wrong with it, those of `parse` all at once. What is right of it
    is judged beside the rest of a command's arguments."""

    def read(context: click.Context, option: click.Parameter, values: Sequence[str]) -> Any:
        found, wrong = attempted(parse, values, ValueError)
        try:
            if not wrong or context.resilient_parsing:
                return join(found)
        except ValueError as mistake:
            wrong.append(str(mistake))
        raise click.BadParameter("\n  ".join(wrong), context, option)

    return read


def once_each(
    flag: str, several: str = ""
) -> Callable[[list[tuple[str, Value]]], dict[str, Value]]:
    """Joins values by name; ValueError for a name that has two, with what `several` says of it."""

    def join(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
        found: dict[str, Value] = {}
        wrong = [
            f"{flag} {name} is given twice: {found[name]} and {value}{several}"
            for name, value in pairs
            if found.setdefault(name, value) != value
        ]
        if wrong:
            raise ValueError("\n  ".join(wrong))
        return found

    return join


def batches_of(text: str) -> tuple[int, ...]:
    """`1,4,16`: one or more positive whole numbers."""
    parts = names_of(text)
    wrong = [part for part in parts if not (part.isascii() and part.isdigit() and int(part))]
    if wrong:
        shown = ", ".join(map(repr, wrong))
        raise ValueError(f"{shown}: expected positive whole numbers such as 1,4,16")
    return tuple(map(int, parts))


def names_of(text: str) -> tuple[str, ...]:
    """`none,optimal`: names separated by commas; the verb knows which there are."""
    return tuple(part.strip() for part in text.split(","))


def _dimension(ranges: bool) -> Callable[[str], tuple[str, Extents]]:
    """Name and sizes of `name=value` or `name=value,value`; with `ranges` also of
    `name=low..high`."""

    def parse(given: str) -> tuple[str, Extents]:
        name, _, sizes = given.rpartition("=")
        if not name:
            raise ValueError(f"{given!r}: expected name=value, such as sequence=128")
        try:
            return name, extents(sizes, ranges)
        except ValueError as mistake:
            raise ValueError(f"{name}={mistake}") from None

    return parse


_dims = once_each("--dim", "; several sizes go by commas")


def one_shape(pairs: list[tuple[str, Extents]]) -> tuple[dict[str, int], dict[str, SizeRange]]:
    """The sizes and the ranges by name; ValueError for a name that is given several."""
    sizes: dict[str, int] = {}
    ranges: dict[str, SizeRange] = {}
    wrong = []
    for name, given in _dims(pairs).items():
        if isinstance(given.only, SizeRange):
            ranges[name] = given.only
        elif given.only is not None:
            sizes[name] = given.only
        else:
            first = next(iter((*given.values, *given.ranges)))
            said = f"give one here, such as {name}={first}; `archgen study` compares them"
            wrong.append(f"--dim {name}={given}: these are several sizes; {said}")
    if wrong:
        raise ValueError("\n  ".join(wrong))
    return sizes, ranges


def dim_option(
    join: Callable[[list[tuple[str, Extents]]], object] = lambda pairs: one_shape(pairs)[0],
    means: str = "",
    ranges: bool = False,
) -> Callable[[Verb], Verb]:
    """--dim, with what several sizes mean, and whether it takes `ranges`; a size by name unless
    `join` makes something else of it."""
    return click.option(
        "--dim", "dims", multiple=True, metavar="NAME=VALUE",
        callback=each_parsed(_dimension(ranges), join),
        help=f"Size of a free input dimension{means}. May be repeated.",
    )  # fmt: skip


dims_option = dim_option(
    _dims,
    "; several, separated by commas, are compared, and of ranges such as 1..128,129..512 one "
    "program each runs at several sizes",
    ranges=True,
)


def _port_place(text: str) -> tuple[str, int]:
    """Name and address, in decimal or with 0x; the program knows which ports there are."""
    name, _, address = text.rpartition("=")
    try:
        found = int(address, 0)
    except ValueError:
        found = -1
    if not name or found < 0:
        raise ValueError(f"{text!r}: expected name=address, such as x=0x80000000 or x=4096")
    return name, found


place_option = click.option(
    "--place", "places", multiple=True, metavar="NAME=ADDRESS",
    callback=each_parsed(_port_place, once_each("--place", "; expected one address")),
    help="Address in DRAM for an input or output, which is then verified there. May be repeated.",
)  # fmt: skip


def _input_role(text: str) -> tuple[str, str]:
    """Name and role; the model knows which inputs and roles there are."""
    name, _, role = text.rpartition("=")
    if not name or not role:
        raise ValueError(f"{text!r}: expected name=role, such as cache=state or x=batch:1")
    return name, role


role_option = click.option(
    "--role", "roles", multiple=True, metavar="NAME=ROLE",
    callback=each_parsed(_input_role, once_each("--role")),
    help="What an input is: batch:AXIS, data, state, index, mask or parameter; state::OUTPUT says "
    "which output it is in the next inference.",
)  # fmt: skip


def _set_value(text: str) -> str:
    if not text.rpartition("=")[0]:
        raise ValueError(f"{text!r}: expected name=value, such as scale=0.25 or sizes=[2,3]")
    return text


set_option = click.option(
    "--set", "values", multiple=True, metavar="NAME=VALUE", callback=each_parsed(_set_value, tuple),
    help="Make an input of an ONNX file a constant, where sizes depend on its value: a number or "
    "[2,3]. May be repeated; -m net.onnx:NAME=VALUE says the same.",
)  # fmt: skip
extension_option = click.option(
    "--extension", "extensions", multiple=True, type=click.Path(dir_okay=False),
    help="Python file that registers operators, functions or passes, or the name of an "
    "installed one. May be repeated.",
)  # fmt: skip


def activate_named(extensions: Sequence[str]) -> None:
    """Run the extensions that a command names; what runs them is not imported for none."""
    if extensions:
        slow = import_module("archgen.extensions")
        slow.activate(tuple(map(slow.extension, extensions)))


calibration_option = click.option(
    "--calibration", type=click.Path(dir_okay=False),
    help="Samples for int8 quantization: .npz with one array per input [default: seeded noise].",
)  # fmt: skip
skip_option = click.option(
    "--skip/--no-skip", default=True,
    help="Skip iterations of loops that repeat earlier ones exactly; no number changes.",
)  # fmt: skip
all_option = click.option(
    "--all", "everything", is_flag=True,
    help="Print every point; else of more than twenty the quickest of each network.",
)  # fmt: skip
host_option = click.option(
    "--host/--no-host", default=True, help="Whether operators may be left to the host processor."
)
csv_option = click.option("--csv", type=FILE, metavar="FILE", help="Also write the points as CSV.")


def _seconds(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """`value`, which has to be a number: no time is past a deadline that is none."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number of seconds.", context, option)
    return value


def bounds_options(timeout: str, memory: str) -> Callable[[Verb], Verb]:
    """--timeout and --memory, with what they bound."""
    return combined_options(
        click.option(
            "--timeout", type=click.FloatRange(0, min_open=True), callback=_seconds,
            metavar="SECONDS",
            help=f"{timeout}  [default: no step that runs the model takes more than 600]",
        ),
        click.option("--memory", callback=parsed(parse_bytes), metavar="SIZE", help=memory),
    )  # fmt: skip


# `--ignore RULE` of the verbs that hold machines against what can be built and fed.


def _rules(texts: Iterable[tuple[str, ...]]) -> list[str]:
    """Names of rules; unknown ones are refused together."""
    names = [name for names in texts for name in names if name]
    wrong = [f"{name!r}{guess(name, RULES)}" for name in names if name not in RULES]
    if wrong:
        known = "`archgen explain lint` lists all"
        raise ValueError(f"no rule is called {', nor '.join(wrong)}; {known}")
    return names


ignore_option = click.option(
    "--ignore", "ignored", multiple=True, metavar="RULE", callback=each_parsed(names_of, _rules),
    help="Leave a rule of `archgen lint` out; may be repeated, or several separated by commas.",
)  # fmt: skip
