"""The minimum version of PostgreSQL is checked."""

from __future__ import annotations

import pytest
from dataapi.database.errors import MINIMUM_VERSION, version_refusal


@pytest.mark.parametrize("version", [MINIMUM_VERSION * 10_000, 150_004, 180_000, 0])
def test_supported_version_is_accepted(version: int) -> None:
    assert version_refusal(version) is None


@pytest.mark.parametrize(
    ("version", "name"), [(129_999, "12.9999"), (120_022, "12.22"), (100_023, "10.23"), (90_624, "9.6")]
)
def test_unsupported_version_is_rejected_by_name(version: int, name: str) -> None:
    assert version_refusal(version) == f"PostgreSQL {name} is too old: 13 is the oldest supported version"
