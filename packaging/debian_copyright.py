"""Prints the paragraphs of debian/copyright about the libraries of a Debian package (DEP-5).

    python packaging/debian_copyright.py FOLDER

FOLDER contains the package's virtual environment. Licences and copyright notices are copied from the
libraries.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from components import NOTICE, NOTICES, InstalledDistribution, distributions, read_environment

if TYPE_CHECKING:
    from collections.abc import Iterable

SITE = "usr/lib/dataapi/lib/python3*/site-packages"
COPYRIGHT = re.compile(
    r"^\W*((?:©|copyright\b)(?=.*\d{4}|\s*\(c\)).*)((?:\n[^\n]*\w[^\n]*)*)", re.IGNORECASE | re.MULTILINE
)
COMMON = {
    "Apache-2.0": re.compile(
        r" *Apache License\n +Version 2\.0, January 2004.*?any such warranty or additional liability\."
        r"(?:\s+END OF TERMS AND CONDITIONS)?(?:\s+APPENDIX.*?limitations under the License\.)?",
        re.DOTALL,
    ),
    "LGPL-3": re.compile(
        r" *GNU LESSER GENERAL PUBLIC LICENSE\s.*permanent authorization.*?Library\.", re.DOTALL
    ),
}
"""Patterns for licences in every Debian system's /usr/share/common-licenses."""
MIT = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""
"""Text of the MIT licence, for wheels that have this licence but do not contain its text."""


def paragraphs(folder: Path) -> str:
    """Return paragraphs of ``debian/copyright`` for the libraries in a virtual environment."""
    site = next(folder.glob("lib/python3*/site-packages"))
    parts = [_console((site / NOTICES).read_text("utf-8"))]
    for each in distributions(read_environment(site)):
        if each.name != "dataapi-daemon":
            parts.append(_paragraph(each))
    return "".join(f"\n{part}" for part in parts)


def _console(notices: str) -> str:
    licences = sorted({licence for _name, _version, licence in NOTICE.findall(notices)})
    text = f"The notices of all libraries are in {SITE}/{NOTICES}."
    return _format(
        [f"{SITE}/{NOTICES.rpartition('/')[0]}/*"], _holders([notices]), " and ".join(licences), text
    )


def _paragraph(library: InstalledDistribution) -> str:
    licence = library.licence.replace(" AND ", " and ").replace(" OR ", " or ")
    if not library.texts and licence != "MIT":
        raise SystemExit(f"{library.name} contains no licence text, and its licence is not MIT")
    text = "\n\n".join(map(_shortened, library.texts)) or MIT
    author = (
        library.metadata["Author"] or library.metadata["Author-email"] or f"the authors of {library.name}"
    )
    holders = _holders(library.texts) or [" ".join(str(author).split())]
    return _format(_patterns(library), holders, licence, text)


def _patterns(library: InstalledDistribution) -> list[str]:
    """Return patterns of a library's files: its top-level files and folders."""
    names = {path.partition("/") for path in library.paths if not path.startswith((".", "/"))}
    return sorted({f"{SITE}/{name}{slash and '/*'}" for name, slash, _ in names if name != "__pycache__"})


def _holders(texts: Iterable[str]) -> list[str]:
    """Return the copyright notices in texts, without the word "Copyright". Templates are skipped."""
    found = []
    for text in texts:
        for notice, names in COPYRIGHT.findall(_shortened(text)):
            # The holders' names can follow the years of a notice on separate lines.
            others = ", ".join(line.strip() for line in names.splitlines()[1:])
            complete = f"{notice} {others}" if re.search(r"(\d{4}|&)$", notice.strip()) else notice
            found.append(re.sub("^copyright ", "", " ".join(complete.split()), flags=re.IGNORECASE))
    return list(dict.fromkeys(found))


def _shortened(text: str) -> str:
    """Replace the text of a licence with its path if Debian systems contain the licence."""
    for name, pattern in COMMON.items():
        text = pattern.sub(f"See /usr/share/common-licenses/{name}.", text)
    return text.strip()


def _format(patterns: list[str], holders: list[str], licence: str, text: str) -> str:
    lines = [f" {line.rstrip()}" if line.strip() else " ." for line in text.strip().expandtabs().splitlines()]
    fields = [
        "Files: " + "\n ".join(patterns),
        "Copyright: " + "\n ".join(holders),
        f"License: {licence}",
        *lines,
    ]
    return "\n".join(fields) + "\n"


if __name__ == "__main__":
    sys.stdout.write(paragraphs(Path(sys.argv[1])))
