"""The configuration file, environment and secret files, read into settings; all mistakes in them at once."""

from dataapi.service.configuration.load import ConfigurationError, load, load_service

__all__ = ["ConfigurationError", "load", "load_service"]
