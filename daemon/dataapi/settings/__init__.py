"""The configuration: frozen values, or every mistake in it at once."""

from __future__ import annotations

from dataapi.settings.load import load, load_service
from dataapi.settings.mistakes import ConfigurationError, Mistake
from dataapi.settings.model import Project, Settings, TransactionEnd, Webhooks
from dataapi.settings.sources import DEFAULT_FILES

__all__ = [
    "DEFAULT_FILES",
    "ConfigurationError",
    "Mistake",
    "Project",
    "Settings",
    "TransactionEnd",
    "Webhooks",
    "load",
    "load_service",
]
