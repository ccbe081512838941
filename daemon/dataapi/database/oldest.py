"""The oldest PostgreSQL that the daemon works with; pure."""

from __future__ import annotations

OLDEST = 13
"""The major version, the oldest one that all tests are run on."""


def version_refusal(server_version: int) -> str | None:
    """Return why a server cannot be worked with, or None when it can.

    :param server_version: as ``server_version_num`` has it; 0 when a pooler or proxy does not tell.
    """
    if server_version == 0 or server_version >= OLDEST * 10_000:
        return None
    if server_version >= 100_000:
        version = f"{server_version // 10_000}.{server_version % 10_000}"
    else:
        version = f"{server_version // 10_000}.{server_version // 100 % 100}"
    return f"PostgreSQL {version} is too old: {OLDEST} is the oldest version that is supported"
