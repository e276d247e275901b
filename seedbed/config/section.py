"""What all sections of the configuration share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# Sizes and counts fit 32 bits and floats fit fp32, whatever computes with them.
Positive = Annotated[int, Field(gt=0, lt=2**31)]
Rate = Annotated[float, Field(ge=0, le=1e6)]
Span = Annotated[int, Field(ge=0, lt=2**31)] | Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Epsilon = Annotated[float, Field(ge=1e-37, le=1)]
Multiplier = Annotated[float, Field(ge=1e-9, le=1e9)]
Folder = Annotated[str, Field(min_length=1, pattern="^[^\\x00]*$")]


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
