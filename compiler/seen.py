"""What is read of a machine: a view of it that notes every field, so that what was decided is known
to hold for every other machine which has the same there.

    seen = Seen(arch)            a decision reads `seen.machine` as it would read `arch`
    seen.noted                   {memories.local.size: 262144, front_end.sync: tokens, ...}
    read_again(other, seen.noted) == tuple(seen.noted.values())      it holds for `other` as well

The one idea: nobody has to say which fields a decision depends on, so nobody can forget one. A view
may stand on another view, which then notes what is read through it as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import cached_property
from types import FunctionType, MethodType
from typing import Any, cast

from simmodel.arch import Arch
from simmodel.part import Part

Field = tuple[str, ...]
"""Names on the way from a machine to one of its fields."""
_ABSENT = "absent"
_CLOSED: Field = ("closed",)


class Seen:
    """A machine whose fields are noted as they are read."""

    def __init__(self, arch: Arch) -> None:
        self.noted: dict[Field, Hashable] = {}
        """Each field that was read, and what stood there."""
        self.machine = cast(Arch, _View(arch, (), self.noted))
        """To be read in the place of `arch`."""

    def closed(self) -> dict[Field, Hashable]:
        """What was noted; whoever reads another field from now on gets an AttributeError."""
        found = dict(self.noted)
        self.noted.clear()
        self.noted[_CLOSED] = True
        return found


def read_again(arch: Arch, fields: Iterable[Field]) -> tuple[Hashable, ...]:
    """What stands in `fields` of another machine, as `Seen.noted` holds it."""
    return tuple(_standing(_reached(arch, field)) for field in fields)


def _reached(arch: Arch, field: Field) -> object:
    value: Any = arch
    for name in field:
        if isinstance(value, dict):
            value = value.get(name, _ABSENT)
        elif isinstance(value, Part):
            value = getattr(value, name, _ABSENT)
        else:
            return _ABSENT
    return value


def _standing(value: object) -> Hashable:
    """A field by its value; a part, or several by name, by their kind alone: what is read of them
    is noted where it is read."""
    if isinstance(value, Part):
        return value.__class__.__name__
    if isinstance(value, dict):
        return tuple((name, _standing(each)) for name, each in value.items())
    assert isinstance(value, Hashable)
    return value


class _View:
    """A part of a machine. What has been read once is an attribute like any other."""

    def __init__(self, part: Part, field: Field, noted: dict[Field, Hashable]) -> None:
        self.__dict__ |= {"_part": part, "_field": field, "_noted": noted}

    @property
    def __class__(self) -> type[Any]:
        """Of the part: who asks what it is gets the answer of the part itself."""
        return cast(type[Any], self.__dict__["_part"].__class__)

    @__class__.setter
    def __class__(self, kind: type[Any]) -> None:
        raise AttributeError("a view stays what it is")

    def __getattr__(self, name: str) -> Any:
        kind = self.__class__
        if name in kind.model_fields:
            found = self._note(name)
        else:  # what is worked out of fields is worked out of what the view shows
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
        if isinstance(value, Part):
            return _View(value, field, noted)
        if isinstance(value, dict):
            return {
                key: _View(each, (*field, key), noted) if isinstance(each, Part) else each
                for key, each in value.items()
            }
        return value
