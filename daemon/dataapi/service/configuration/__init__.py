"""The configuration file, environment and secret files, read into settings; all mistakes in them at once."""

from dataapi.service.configuration.load import load, load_service
from dataapi.service.configuration.mistakes import ConfigurationError

__all__ = ["ConfigurationError", "load", "load_service"]
