"""The ``dataapi`` command."""
