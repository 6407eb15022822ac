"""What every part of a machine is: a frozen record, and the words that parts share.

Memories have fixed *roles* (`dram`, `shared`, `local`, `weights`, `accumulators`); engines name the
roles they touch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from simmodel.listed import listed
from simmodel.units import Delay

ElementType = Literal["int8", "fp16", "bf16", "fp32", "int16"]
StorageType = Literal[
    "int8", "uint8", "int16", "int32", "fp16", "bf16", "fp32", "int4", "uint4", "fp8e4m3", "fp8e5m2"
]
NarrowType = Literal["int4", "uint4", "int8", "uint8", "fp8e4m3", "fp8e5m2"]
MemoryRole = Literal["dram", "shared", "local", "weights", "accumulators"]
Writeback = Literal["bias", "clip", "requantize"]
NO_DELAY = Delay(0, True)


Roles = Annotated[
    tuple[MemoryRole, ...],
    Field(min_length=1),
    BeforeValidator(listed, json_schema_input_type=MemoryRole | tuple[MemoryRole, ...]),
]


class Part(BaseModel):
    """A part of the machine: immutable, and with no unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )
