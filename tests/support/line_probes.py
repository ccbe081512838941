"""Records which lines of the daemon run in the tests' process, in place of coverage's trace function.

The trace function is called for every line of every library, and doubles the processor time. Slipcover
inserts probes into the daemon's code only. A probe remains after its first run, because slipcover would
search all modules and frames to remove it. Daemons in other processes use the trace function.

Importing this module starts the recording if coverage is measured. Import it before ``dataapi``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coverage import Coverage
    from slipcover import Slipcover

_ROOT = Path(__file__).parents[2]
_SOURCES = (_ROOT / "daemon", _ROOT / "plugins")


def _started() -> tuple[Coverage, Slipcover] | None:
    try:
        from coverage import Coverage  # noqa: PLC0415 - the tests of the lowest versions go without
    except ImportError:
        return None
    tracing = Coverage.current()
    if tracing is None:
        return None
    from slipcover import FileMatcher, ImportManager, Slipcover  # noqa: PLC0415 - of use to coverage alone

    tracing.stop()
    probes = Slipcover(d_miss_threshold=sys.maxsize)
    ImportManager(probes, FileMatcher(sources=_SOURCES)).__enter__()
    return tracing, probes


_RUNNING = _started()


def hand_over() -> None:
    """Pass the executed lines to coverage, to be combined with those of the daemons."""
    if _RUNNING is not None:
        tracing, probes = _RUNNING
        files = probes.get_coverage()["files"]
        lines = {name: found["executed_lines"] for name, found in files.items()}
        tracing.get_data().add_lines(lines)
