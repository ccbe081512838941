"""Checks the files of a release, at the end of ``make release``.

    python packaging/checks.py FOLDER

Each problem is printed. The exit status is 1 if there are problems. A missing file is not a problem.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components import (
    COPYRIGHT,
    InstalledDistribution,
    distributions,
    read_image,
    read_package,
    read_wheel,
)
from distributions import ROOT
from sbom import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SUMS = "SHA256SUMS"
NATIVE = re.compile(r"\.(so|pyd|dll|dylib)(\.|$)")
ACCEPTED = frozenset(
    {
        *(
            "0BSD",
            "Apache-2.0",
            "BSD-2-Clause",
            "BSD-3-Clause",
            "CNRI-Python",
            "ISC",
            "MIT",
            "MIT-0",
            "PSF-2.0",
        ),
        *("Unicode-3.0", "Unlicense", "ZPL-2.1", "Zlib", "Apache-2.0 WITH LLVM-exception"),
    }
)
"""Licences that require only a notice."""
REPLACEABLE = {"certifi": "MPL-2.0", "psycopg": "LGPL-3.0-only", "psycopg-binary": "LGPL-3.0-only"}
"""Licences accepted for libraries in unmodified separate files, so that users can replace them."""


def problems(folder: Path) -> Iterator[str]:
    """Yield problems with the files in a folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for file in files:
        found: list[str] = []
        if file.suffix == ".whl":
            found = [*wheel_problems(file), *sbom_problems(file)]
        elif file.suffix == ".deb":
            found = [*package_problems(file), *sbom_problems(file)]
        elif file.name.endswith("-image.tar"):
            found = [*image_problems(file), *sbom_problems(file)]
        elif file.name.endswith(".tar.gz"):
            found = list(source_problems(file))
        yield from (f"{file.name}: {problem}" for problem in found)
    sums = (folder / SUMS).read_text("utf-8") if (folder / SUMS).exists() else ""
    actual = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in files if file.name != SUMS
    ]
    if sums.splitlines() != actual:
        yield f"{SUMS}: the checksums do not match the files"


def wheel_problems(file: Path) -> Iterator[str]:
    """Yield problems with a wheel. Wheels must be installable on any platform."""
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    yield from (f"{name} is a native library" for name in names if NATIVE.search(name))
    [own] = distributions(read_wheel(file))
    if own.tags != {"py3-none-any"}:
        yield f"the tags are {', '.join(sorted(own.tags))} (expected py3-none-any)"
    if file.name.split("-")[1] != own.version:
        yield f"the metadata contains another version than the file name: {own.version}"
    if not own.texts:
        yield "the licence is missing"


def source_problems(file: Path) -> Iterator[str]:
    """Yield problems with a source distribution."""
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("PKG-INFO", "LICENSE", "requirements.lock", "packaging/deb.py"):
        if name not in names:
            yield f"{name} is missing"


def package_problems(file: Path) -> Iterator[str]:
    """Yield problems with a Debian package."""
    words = ["dpkg-deb", "--field", str(file), "Package", "Version", "Architecture"]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    fields = dict(line.split(": ", 1) for line in printed.splitlines())
    if file.name != "{Package}_{Version}_{Architecture}.deb".format_map(fields):
        yield f"the control file has {fields['Package']} {fields['Version']} for {fields['Architecture']}"
    files = read_package(file)
    installed = distributions(files)
    yield from distribution_problems(installed)
    text = files.get(COPYRIGHT, b"").decode()
    for each in installed:
        [folder] = {path.partition("/")[0] for path in each.paths if ".dist-info/" in path}
        if each.name != "dataapi-daemon" and f"/{folder}/*\n" not in text:
            yield f"the copyright file does not mention {each.name}"


def image_problems(file: Path) -> Iterator[str]:
    """Yield problems with an image."""
    files, configuration = read_image(file)
    installed = distributions({name: text for name, text in files.items() if name.startswith("opt/dataapi/")})
    yield from distribution_problems(installed)
    labels = configuration.get("Labels") or {}
    for label in ("title", "description", "licenses", "version", "revision", "source"):
        if not labels.get(f"org.opencontainers.image.{label}"):
            yield f"the label org.opencontainers.image.{label} is empty"
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", configuration.get("User", "")):
        yield f"the user is {configuration.get('User', '')!r} (expected numbers, not root's)"


def distribution_problems(installed: list[InstalledDistribution]) -> Iterator[str]:
    """Yield installed distributions with versions that are not locked, or with unacceptable licences."""
    text = (ROOT / "requirements.lock").read_text("utf-8")
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    for each in installed:
        if each.name != "dataapi-daemon" and locked.pop(each.name, None) != each.version:
            yield f"{each.name} {each.version} is not in requirements.lock"
        if not is_accepted(each.name, each.licence):
            yield f"{each.name} has the licence {each.licence or 'unknown'}"
    yield from (f"{name} is missing" for name in locked)


def is_accepted(name: str, expression: str) -> bool:
    """Whether the licence of a component, an SPDX expression, is acceptable."""
    if REPLACEABLE.get(name) == expression:
        return True
    while innermost := re.search(r"\(([^()]*)\)", expression):
        accepted = "MIT" if is_accepted("", innermost[1]) else "none"
        expression = expression[: innermost.start()] + accepted + expression[innermost.end() :]
    return any(
        all(licence.strip() in ACCEPTED for licence in choice.split(" AND "))
        for choice in expression.split(" OR ")
    )


def sbom_problems(file: Path) -> Iterator[str]:
    """Yield problems with a file's SBOM."""
    path = file.with_name(file.name + SUFFIX)
    if not path.exists():
        yield "the SBOM is missing"
        return
    sbom = json.loads(path.read_text("utf-8"))
    described = sbom["metadata"]["component"]
    if described["hashes"][0]["content"] != hashlib.sha256(file.read_bytes()).hexdigest():
        yield "the SBOM describes another file"
    if error := schema_error(sbom):
        yield f"the SBOM is invalid: {error}"
    known = {described["bom-ref"], *(each["bom-ref"] for each in sbom["components"])}
    for dependency in sbom["dependencies"]:
        if unknown := {dependency["ref"], *dependency["dependsOn"]} - known:
            yield f"the SBOM has no component {min(unknown)}"
    for each in sbom["components"]:
        licence = each.get("licenses", [{"expression": ""}])[0]["expression"]
        if licence and not is_accepted(each["name"], licence):
            yield f"{each['purl']} has the licence {licence}"


def schema_error(sbom: Mapping[str, Any]) -> str | None:
    """Return the first violation of CycloneDX's schema; None if valid, or if no schema is installed."""
    validator = _validator(sbom["specVersion"])
    error = None if validator is None else validator.validate_str(json.dumps(sbom))
    return None if error is None else str(error.data.message)


@cache
def _validator(version: str) -> Any:
    try:
        from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 - optional
        from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415
    except ImportError:
        return None
    return JsonStrictValidator(SchemaVersion.from_version(version))


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    for problem in found:
        print(problem)  # noqa: T201 - the user reads it
    sys.exit(1 if found else 0)
