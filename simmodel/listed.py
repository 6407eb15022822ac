"""Lists in files: one value stands for a list of one."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator


def listed(value: object) -> object:
    """A value alone as a list of one."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[
    tuple[str, ...], BeforeValidator(listed, json_schema_input_type=str | tuple[str, ...])
]
