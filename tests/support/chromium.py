"""A headless Chromium."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.daemon import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

_PROGRAMS = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium")
"""The headless shell comes first: it uses two thirds of the processor time of the full browser."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser, or skip the test if it is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright for Python")
    program = next(filter(Path.exists, map(Path, _PROGRAMS)), None)
    if program is None:
        pytest.skip(f"needs {' or '.join(_PROGRAMS)}")
    playwright.expect.set_options(timeout=PATIENCE * 1000)
    with playwright.sync_playwright() as driver:
        # Containers lack the privileges for Chromium's sandbox, and have little shared memory.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = driver.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()
