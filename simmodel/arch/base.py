"""Base class of the machine's parts, a frozen record, and field types that parts share.

Memories have fixed *roles* (`dram`, `flash`, `shared`, `local`, `weights`, `accumulators`);
engines name the roles they touch.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from simmodel.arch.units import Delay


def listed(value: object) -> object:
    """A single value as a list of one."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[
    tuple[str, ...], BeforeValidator(listed, json_schema_input_type=str | tuple[str, ...])
]


ElementType = Literal["int8", "fp16", "bf16", "fp32", "int16"]
BlockType = Literal["mxfp8", "mxfp6", "mxfp4", "mxint8", "bfp8"]
RateType = Literal[
    ElementType, "int8_2of4", "fp16_2of4", "bf16_2of4", "fp16_mxfp8", "fp16_mxfp6", "fp16_mxfp4",
    "fp16_mxint8", "bf16_mxfp8", "bf16_mxfp6", "bf16_mxfp4", "bf16_mxint8", "fp16_bfp8",
    "bf16_bfp8", BlockType,
]  # fmt: skip
StorageType = Literal[
    "int8", "uint8", "int16", "int32", "fp16", "bf16", "fp32", "int4", "uint4", "fp8e4m3",
    "fp8e5m2", BlockType,
]  # fmt: skip
NarrowType = Literal["int4", "uint4", "int8", "uint8", "fp8e4m3", "fp8e5m2"]
MemoryRole = Literal["dram", "shared", "local", "weights", "accumulators", "flash"]
OFF_CHIP = ("dram", "flash")
"""Roles of memories off chip, of which a chip has one each."""
Writeback = Literal["bias", "clip", "requantize", "table", "add"]
Chain = Literal["add_add", "add_mul", "sub_mul", "mul_mul"]
CHAINS: tuple[str, ...] = get_args(Chain)
"""Pairs of functions, the first of which hands its result to the second within the engine."""
ENTRIES = 256
"""Of a table of 8-bit numbers: one for each byte."""
NO_DELAY = Delay(0.0, True)


Roles = Annotated[
    tuple[MemoryRole, ...],
    Field(min_length=1),
    BeforeValidator(listed, json_schema_input_type=MemoryRole | tuple[MemoryRole, ...]),
]


class FrozenModel(BaseModel):
    """A part of the machine: immutable, and with no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """With the words below each field: read here, as reading them takes longer than making the
        class, and pydantic's own `use_attribute_docstrings` reads them when it is made."""
        made = handler(schema)
        known = handler.resolve_ref_schema(made).get("properties", {})
        for part in reversed(cls.__mro__[: cls.__mro__.index(FrozenModel)]):
            for name, words in words_below(part).items():
                known[cls.model_fields[name].alias or name]["description"] = words
        return made


def words_below(part: type) -> dict[str, str]:
    """The text below each field of a class, or below each value of an enumeration, by name."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
    return {
        ast.unparse(target): inspect.cleandoc(below.value.value)
        for above, below in pairwise(getattr(tree, "body", ()))
        if isinstance(above, ast.AnnAssign | ast.Assign)
        for target in ([above.target] if isinstance(above, ast.AnnAssign) else above.targets)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


# What is wrong with a machine: a field that contradicts others, and a guess at what was meant.

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """A field (by its path in files) that contradicts other fields, and which."""

    path: Path
    message: str
    about: tuple[Path, ...] = ()


def near(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'copy'?`, or empty if no known name is similar."""
    found = difflib.get_close_matches(word, tuple(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


class ArrayViews:
    """A machine as layers on each of its arrays see it; equal to nothing else, as machines are
    compared by their fields."""

    def __init__(self, whole: Any) -> None:
        self.whole, self._known = whole, dict[str, Any]()

    def of(self, name: str) -> Any:
        """With the array of this name as its `matrix`."""
        if name not in self._known:
            array = self.whole.engines_[name]
            self._known[name] = self.whole.model_copy(update={"matrix": array})
        return self._known[name]


# Tables that users may add to, and that know what has been added.

Value = TypeVar("Value")


class Registry(dict[str, Value]):
    """A table by name that extensions can extend."""

    every: ClassVar[list[Registry[Any]]] = []
    """All of them, in order of creation."""

    def __init__(self, what: str, shipped: Mapping[str, Value]) -> None:
        """`what` its entries are, in a user's words: `operator`."""
        super().__init__(shipped)
        self.what, self.shipped = what, dict(shipped)
        Registry.every.append(self)

    def foreign(self) -> list[str]:
        """Names whose value is not the shipped one."""
        names = {**self.shipped, **self}
        none = object()
        return [n for n in names if self.get(n, none) is not self.shipped.get(n, none)]


Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Latest(Generic[Asked, Answer]):
    """What `find` says of things: the `most` latest (None: all), which are known by identity, are
    not looked at again. A search asks several questions of one before it turns to the next."""

    def __init__(self, find: Callable[[Asked], Answer], most: int | None = 8) -> None:
        self._find, self._most = find, most
        self._known: dict[int, tuple[Asked, Answer]] = {}

    def __call__(self, asked: Asked) -> Answer:
        found = self._known.get(id(asked))
        if found is None:
            found = asked, self._find(asked)
            if self._most is not None and len(self._known) >= self._most:
                del self._known[next(iter(self._known))]
            self._known[id(asked)] = found
        return found[1]
