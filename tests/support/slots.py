"""Statement slots whose source is the value itself."""

from __future__ import annotations

from collections.abc import Hashable
from typing import cast

from dataapi.sql.algebra import Parameter, SlotSource


def parameter(source: Hashable, type_: str = "unknown") -> Parameter:
    """Return a slot that is identified by its source."""
    return Parameter(cast("SlotSource", source), type_)
