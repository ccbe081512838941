"""The configuration: its file, environment variables and secret files, parsed into settings."""

from dataapi.service.configuration.load import load, load_service
from dataapi.service.configuration.mistakes import ConfigurationError

__all__ = ["ConfigurationError", "load", "load_service"]
