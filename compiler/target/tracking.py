"""What is read of a machine: a view of it that notes every field, so that what was decided is known
to hold for every other machine which has the same there.

    seen = Seen(arch)            a decision reads `seen.machine` as it would read `arch`
    seen.noted                   {memories.local.size: 262144, front_end.sync: tokens, ...}
    read_again(other, seen.noted) == tuple(seen.noted.values())      it holds for `other` as well

The one idea: nobody has to say which fields a decision depends on, so nobody can forget one. A view
may stand on another view, which then notes what is read through it as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType, MethodType
from typing import Any, Generic, TypeVar, cast

from simmodel.arch.base import FrozenModel, Latest
from simmodel.arch.record import Arch

Value = TypeVar("Value")
Field = tuple[str, ...]
"""Names on the way from a machine to one of its fields."""
_ABSENT = "absent"
_CLOSED: Field = ("closed",)
_WORKED_OUT = frozenset({"token_peers"})
"""What is noted by its own value, not by the fields that it is worked out of."""


class TrackedArch:
    """A machine whose fields are noted as they are read."""

    def __init__(self, arch: Arch) -> None:
        self.noted: dict[Field, Hashable] = {}
        """Each field that was read, and what stood there."""
        self.machine = cast(Arch, _TrackedView(arch, (), self.noted))
        """To be read in the place of `arch`."""

    def freeze(self) -> dict[Field, Hashable]:
        """What was noted; whoever reads another field from now on gets an AttributeError."""
        found = dict(self.noted)
        self.noted.clear()
        self.noted[_CLOSED] = True
        return found


def read_again(arch: Arch, fields: Iterable[Field]) -> tuple[Hashable, ...]:
    """What stands in `fields` of another machine, as `TrackedArch.noted` holds it."""
    return tuple(_standing(_field_value(arch, field)) for field in fields)


def _field_value(arch: Arch, field: Field) -> object:
    value: Any = arch
    for name in field:
        if isinstance(value, dict):
            value = value.get(name, _ABSENT)
        elif isinstance(value, FrozenModel):
            value = getattr(value, name, _ABSENT)
        else:
            return _ABSENT
    return value


def _standing(value: object) -> Hashable:
    """A field by its value; a part, or several by name, by their kind alone: what is read of them
    is noted where it is read."""
    if isinstance(value, FrozenModel):
        return value.__class__.__name__
    if isinstance(value, dict):
        return tuple((name, _standing(each)) for name, each in value.items())
    assert isinstance(value, Hashable)
    return value


class _TrackedView:
    """A part of a machine. What has been read once is an attribute like any other."""

    def __init__(self, part: FrozenModel, field: Field, noted: dict[Field, Hashable]) -> None:
        self.__dict__ |= {"_part": part, "_field": field, "_noted": noted}

    @property
    def __class__(self) -> type[Any]:
        """Of the part: who asks what it is gets the answer of the part itself."""
        return cast(type[Any], self.__dict__["_part"].__class__)

    @__class__.setter
    def __class__(self, kind: type[Any]) -> None:
        raise AttributeError("a view stays what it is")

    def with_array(self, name: str) -> Any:
        """See `Arch.with_array`."""
        if name != "matrix" and self.matrix is self.engines_[name]:
            return self
        views: dict[str, Any] = self.__dict__.setdefault("_views", {"matrix": self})
        if name not in views:
            views[name] = _TrackedView(self._part, self._field, self._noted)
            views[name].__dict__["_array"] = name
            views[name].__dict__["matrix"] = self.engines_[name]
        return views[name]

    def __getattr__(self, name: str) -> Any:
        kind = self.__class__
        if name in kind.model_fields or name in _WORKED_OUT:
            found = self._note(name)
        else:  # what else is worked out of fields is worked out of what the view shows
            known = getattr(kind, name)
            if isinstance(known, property):
                assert known.fget is not None
                found = known.fget(self)
            elif isinstance(known, cached_property):
                found = known.func(self)
            elif isinstance(known, FunctionType):
                found = MethodType(known, self)
            else:
                raise AttributeError(f"{kind.__name__}.{name} is not to be asked of a view")
        self.__dict__[name] = found
        return found

    def _note(self, name: str) -> Any:
        field, noted = (*self._field, name), self._noted
        if _CLOSED in noted:
            raise AttributeError(f"{'.'.join(field)} is read when nobody notes it any more")
        value = getattr(self._part, name)
        noted[field] = _standing(value)
        if isinstance(value, dict):
            return {key: _tracked(each, (*field, key), noted) for key, each in value.items()}
        return _tracked(value, field, noted)


def _tracked(value: Any, field: Field, noted: dict[Field, Hashable]) -> Any:
    return _TrackedView(value, field, noted) if isinstance(value, FrozenModel) else value


def once(question: str, key: Hashable, arch: Arch, make: Callable[[Arch], Value]) -> Value:
    """The answer to a question about what is in `key`, given once for a machine and all views of
    it; each view notes what was read of the machine for that question so far."""
    root, array, noting = cast(Any, arch), "", list[dict[Field, Hashable]]()
    while type(root) is _TrackedView:
        own = root.__dict__
        root, array = own["_part"], array or own.get("_array", "")
        noting.append(own["_noted"])
    asked = question, array, bool(noting)
    machines, answers = _ANSWERS(root)
    if asked not in machines:
        seen = TrackedArch(root)
        view = seen.machine.with_array(array) if array else seen.machine
        machines[asked] = (view if noting else arch), seen.noted
    machine, read = machines[asked]
    if (asked, key) not in answers:
        answers[asked, key] = make(machine)
    for noted in noting:
        if _CLOSED in noted:
            raise AttributeError("a machine is read when nobody notes it any more")
        noted.update(read)
    return cast(Value, answers[asked, key])


_Asked = tuple[str, str, bool]
_ANSWERS: Latest[
    Arch, tuple[dict[_Asked, tuple[Arch, dict[Field, Hashable]]], dict[Hashable, Any]]
] = Latest(lambda _: ({}, {}), 4)
"""Of the latest machines: for each question a view, with what was read of it, and the answers."""


# Values that were worked out of a machine, remembered by what was read of it: machines that have
# the same there share them.

Fields = tuple[Field, ...]


class Hashed:
    """A value that is looked up often and whose hash takes long: it is worked out once."""

    __slots__ = ("number", "value")

    def __init__(self, value: Hashable) -> None:
        self.value, self.number = value, hash(value)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed) and self.value == other.value


@dataclass
class TrackedCache(Generic[Value]):
    """Values of functions; those that were not asked for longest go first."""

    most: int
    found: int = 0
    """How often there was one."""
    kept: OrderedDict[tuple[Hashed, int, Hashed], Value] = field(
        default_factory=OrderedDict, repr=False
    )
    """By what was asked, which fields were read for it, and what stood there."""
    read: dict[Fields, int] = field(default_factory=dict, repr=False)
    """All sets of fields that were read, numbered."""
    asked: dict[Hashed, dict[int, dict[Hashed, Value]]] = field(default_factory=dict, repr=False)
    """The same as `kept`, level by level."""

    def of(
        self, key: Hashable, arch: Arch, standing: dict[int, Hashed],
        make: Callable[[Arch], Value], seen: TrackedArch | None = None,
        same: Callable[[Value, Value], bool] | None = None,
    ) -> Value:  # fmt: skip
        """The value of `make` for a machine, made once for all that are alike to it.

        Args:
            key: what is asked; with a machine, it decides the value.
            arch: the machine.
            standing: of this machine, what stands in each of `read`; it is filled in.
            make: makes the value from the machine that it is given.
            seen: that of values which have read the same; default: a new one.
            same: whether two values of one key are the same: then the one that is there already is
                given, so that what was made of it serves again.
        """
        asked = Hashed(key)
        for number, values in self.asked.get(asked, {}).items():
            stands = standing.get(number) or self._standing(number, arch, standing)
            if stands in values:
                self.kept.move_to_end((asked, number, stands))
                self.found += 1
                return values[stands]
        seen, last = seen or TrackedArch(arch), seen is None
        value = make(seen.machine)
        noted = dict(sorted((seen.freeze() if last else seen.noted).items()))
        known = self.asked.setdefault(asked, {})
        if same is not None:
            others = {id(v): v for values in known.values() for v in values.values()}
            value = next((other for other in others.values() if same(other, value)), value)
        number = self.read.setdefault(tuple(noted), len(self.read))
        stands = Hashed(tuple(noted.values()))
        self.kept[asked, number, stands] = known.setdefault(number, {})[stands] = value
        if len(self.kept) > self.most:
            self._forget_oldest()
        return value

    def _standing(self, number: int, arch: Arch, standing: dict[int, Hashed]) -> Hashed:
        """What stands in the fields of this number."""
        standing[number] = Hashed(read_again(arch, list(self.read)[number]))
        return standing[number]

    def _forget_oldest(self) -> None:
        (asked, number, stands), _ = self.kept.popitem(last=False)
        del self.asked[asked][number][stands]
        if not self.asked[asked][number]:
            del self.asked[asked][number]
        if not self.asked[asked]:
            del self.asked[asked]


class Same:
    """A value as a key: it is that very object, and it stays."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value


@dataclass
class TrackedMemo(TrackedCache[Any]):
    """Values of several functions, for machines that are asked about one after the other."""

    def __post_init__(self) -> None:
        self._arch: Arch | None = None
        self._known: dict[int, Hashed] = {}
        self._views: dict[int, TrackedArch] = {}

    def ask(
        self, function: str, key: Hashable, arch: Arch, make: Callable[[Arch], Value],
        same: Callable[[Value, Value], bool] | None = None,
    ) -> Value:  # fmt: skip
        """The value of `make`, as `of` has it: those that have read the same of the last machine
        share a view of this one."""
        if arch is not self._arch:
            self._arch, self._known, self._views = arch, {}, {}
        asked, seen = (function, key), None
        if sets := self.asked.get(Hashed(asked)):
            last = next(reversed(sets))
            seen = self._views[last] = self._views.get(last) or TrackedArch(arch)
        found: Value = self.of(asked, arch, self._known, make, seen, same)
        return found
