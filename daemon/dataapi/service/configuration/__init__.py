"""The configuration file, environment and secret files, read into settings; all mistakes in them at once."""

from dataapi.service.configuration.load import load, load_service
from dataapi.service.configuration.sources import DEFAULT_FILES, ConfigurationError, Mistake

__all__ = ["DEFAULT_FILES", "ConfigurationError", "Mistake", "load", "load_service"]
