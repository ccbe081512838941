"""Slots of statements whose source is the value itself, for tests that bind nothing."""

from __future__ import annotations

from collections.abc import Hashable
from typing import cast

from dataapi.sql.algebra import Parameter, SlotSource


def parameter(source: Hashable, type_: str = "unknown") -> Parameter:
    """Return a slot that is found again by its source."""
    return Parameter(cast("SlotSource", source), type_)
