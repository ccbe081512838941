"""Statement slots with any hashable value as their source, for tests of the algebra."""

from __future__ import annotations

from collections.abc import Hashable
from typing import cast

from dataapi.sql.algebra import Parameter, SlotSource


def parameter(source: Hashable, type_: str = "unknown") -> Parameter:
    return Parameter(cast("SlotSource", source), type_)
