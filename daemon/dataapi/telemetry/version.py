"""Which version is installed, and what is said about versions."""

from __future__ import annotations

from importlib.metadata import version


def installed_version() -> str:
    """Return the version of the distribution that is installed now."""
    return version("dataapi-daemon")


def version_row(serving: str | None) -> dict[str, str | None]:
    """Return what an extension's row in PostgreSQL's ``pg_available_extensions`` has.

    :param serving: the version of the running daemon, None when none answers.
    """
    return {
        "name": "dataapi",
        "default_version": installed_version(),
        "installed_version": serving,
        "comment": "GraphQL and REST APIs and signed webhooks for PostgreSQL",
    }
