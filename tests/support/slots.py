"""SQL parameters with any hashable value in place of a ``SlotSource``, for tests of ``sql.algebra``."""

from __future__ import annotations

from collections.abc import Hashable
from typing import cast

from dataapi.sql.algebra import Parameter, SlotSource


def parameter(source: Hashable, type_: str = "unknown") -> Parameter:
    return Parameter(cast("SlotSource", source), type_)
