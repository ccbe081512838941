"""A database for the daemons under test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon import SCHEMA

if TYPE_CHECKING:
    from support.postgres import Database, Server


@pytest.fixture(scope="module")
def served(server: Server) -> Database:
    """Give a database whose daemons answer quickly or slowly, as asked."""
    return server.create_database(SCHEMA)
