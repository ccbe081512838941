"""Priorities for systemd's journal."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from dataapi.telemetry.journal import is_journal, with_priority
from dataapi.telemetry.logs import LogRecord, as_text


@pytest.mark.parametrize(
    ("level", "priority"), [("critical", 2), ("error", 3), ("warn", 4), ("info", 6), ("debug", 7)]
)
def test_every_line_of_a_record_has_its_priority(level: str, priority: int) -> None:
    """The journal takes the lines of a traceback for messages of their own."""
    text = with_priority(as_text)(LogRecord(0.5, level, "dataapi.x", "bad", traceback="Traceback\nboom"))
    assert [line[:3] for line in text.splitlines()] == [f"<{priority}>"] * 3


def test_only_the_stream_that_the_environment_names_is_the_journal() -> None:
    """A daemon whose output goes elsewhere may have inherited the variable."""
    with tempfile.TemporaryFile() as one, Path("/dev/null").open("rb") as other:
        found = Path(f"/proc/self/fd/{one.fileno()}").stat()
        environ = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert is_journal(one.fileno(), environ)
        assert not is_journal(other.fileno(), environ)
        assert not is_journal(one.fileno(), {})
        assert not is_journal(one.fileno(), {"JOURNAL_STREAM": "nonsense"})
