"""The installed version and its description."""

from __future__ import annotations

from importlib.metadata import version


def installed_version() -> str:
    return version("dataapi-daemon")


def version_row(serving: str | None) -> dict[str, str | None]:
    """Return a row like those of PostgreSQL's ``pg_available_extensions``.

    :param serving: version of the running daemon, or None if it does not run.
    """
    return {
        "name": "dataapi",
        "default_version": installed_version(),
        "installed_version": serving,
        "comment": "GraphQL and REST APIs and signed webhooks for PostgreSQL",
    }
