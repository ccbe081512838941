"""Measures the processor time of each test, including PostgreSQL and daemons: ``pytest --costs=FILE``.

Processor time does not depend on the load of the machine. A fixture's time is attributed to the first
test that uses it.
"""

from __future__ import annotations

import ctypes
import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

OPTION = "--costs"
_PROPERTY = "processor seconds"
_TICKS = os.sysconf("SC_CLK_TCK")
_BECOME_SUBREAPER = 36


class Costs:
    """Measures tests in each process, and adds up the results in the reporting process."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)
        self._before = 0.0
        self._seconds: dict[str, float] = {}
        # Become the parent of detached servers, so that their processor time is counted.
        ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1)

    def pytest_sessionstart(self) -> None:
        """Start the clock, so that the first test includes imports."""
        self._before = _processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            now = _processor_seconds()
            report.user_properties.append((_PROPERTY, now - self._before))
            self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the time of a test, whichever process ran it."""
        for name, value in report.user_properties:
            if name == _PROPERTY and isinstance(value, float):
                self._seconds[report.nodeid] = value

    def pytest_terminal_summary(self) -> None:
        """Write the seconds of each module and test, most expensive first."""
        modules: defaultdict[str, float] = defaultdict(float)
        for test, seconds in self._seconds.items():
            modules[test.partition("::")[0]] += seconds
        lines = [f"{sum(modules.values()):9.2f}  all"]
        for figures in (modules, self._seconds):
            ordered = sorted(figures.items(), key=lambda entry: -entry[1])
            lines += [f"{seconds:9.2f}  {name}" for name, seconds in ordered]
        self._file.write_text("\n".join(lines) + "\n", "utf-8")


def _processor_seconds() -> float:
    """Return the processor time of this process and its descendants, including processes that have exited."""
    used: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text("utf-8", "replace").rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children[int(fields[1])].append(int(name))
        used[int(name)] = sum(map(int, fields[11:15]))
    total, waiting = 0, [os.getpid()]
    while waiting:
        one = waiting.pop()
        total += used.get(one, 0)
        waiting += children[one]
    return total / _TICKS
