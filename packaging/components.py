"""Lists the third-party components in the files of a release.

Components are the console's libraries, Python distributions, the libraries in their wheels, and Debian
packages. They are read from the metadata in the files, so that the lists contain what was built.
"""

from __future__ import annotations

import base64
import csv
import json
import re
import subprocess
import tarfile
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from email.message import Message

ROOT = Path(__file__).parents[1]
NOTICES = "dataapi/web/console/assets/NOTICES.txt"
NOTICE = re.compile(r"^## (\S+) - (\S+) \((.+)\)$", re.MULTILINE)
CONTAINED = re.compile(r"^## Inside (\S+)\n.*?^It contains code of: ([^\n]*)\.$", re.MULTILINE | re.DOTALL)
DPKG = "var/lib/dpkg/status"
SYSTEM = "usr/lib/os-release"
COPYRIGHT = "usr/share/doc/dataapi/copyright"
DIST_INFO = re.compile(r"(?:^|/)([^/]+)\.dist-info/(.+)$")
TEXT = re.compile(r"(^|/)(LICEN[CS]E|COPYING|NOTICE)[^/]*$", re.IGNORECASE)
READ = re.compile(
    rf"(^|/)({NOTICES}|{DPKG}|{COPYRIGHT}|{SYSTEM}|[^/]+\.dist-info/(METADATA|RECORD|WHEEL|sboms/[^/]+\.json))$"
    rf"|\.dist-info/(?:.*/)?(LICEN[CS]E|COPYING|NOTICE)[^/]*$",
    re.IGNORECASE,
)
"""Pattern for the paths of the files to read."""
EXTRAS = ("otel",)
"""Extras of dataapi that requirements.lock includes."""
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache License, Version 2.0": "Apache-2.0",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""SPDX identifiers of licences that distributions name differently."""


@dataclass(frozen=True)
class Component:
    """A component, identified by its package URL (purl).

    :param licence: SPDX expression, or "" if unknown.
    :param hashes: algorithm and hexadecimal digest of the archive that the component was installed from.
    :param requires: package URLs of the components that this component requires or contains.
    """

    purl: str
    name: str
    version: str = ""
    licence: str = ""
    hashes: tuple[tuple[str, str], ...] = ()
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class InstalledDistribution:
    """The metadata of an installed Python distribution.

    :param tags: tags of the wheel that the distribution was installed from.
    :param paths: installed files, relative to site-packages.
    :param texts: licences and notices.
    :param sboms: SBOMs that the wheel contains (PEP 770).
    """

    metadata: Message
    tags: frozenset[str]
    paths: tuple[str, ...]
    texts: tuple[str, ...]
    sboms: tuple[Mapping[str, Any], ...]

    @property
    def name(self) -> str:
        """The normalized name (PEP 503)."""
        return normalized(str(self.metadata["Name"]))

    @property
    def version(self) -> str:
        return str(self.metadata["Version"])

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{quote(self.version)}"

    @property
    def licence(self) -> str:
        """SPDX expression, or "" if the metadata does not name a known licence."""
        if expression := self.metadata["License-Expression"]:
            return str(expression)
        stated = str(self.metadata["License"] or "").strip()
        if re.fullmatch(r"[\w.+-]+", stated) and stated != "UNKNOWN":
            return stated
        named = [stated, *map(str, self.metadata.get_all("Classifier", []))]
        return next((SPDX[name] for name in named if name in SPDX), "")

    def requirements(self) -> Iterator[str]:
        """Yield the normalized names of required distributions, on any platform."""
        extras = EXTRAS if self.name == "dataapi-daemon" else ()
        for line in map(str, self.metadata.get_all("Requires-Dist", [])):
            name = re.match(r"[\w.-]+", line)
            extra = re.search(r"""extra == ['"]([\w-]+)""", line)
            if name is not None and (extra is None or extra[1] in extras):
                yield normalized(name[0])


def normalized(name: str) -> str:
    """Return the normalized name of a Python distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_wheel(file: Path) -> dict[str, bytes]:
    """Return the metadata files of a wheel by path."""
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist() if READ.search(name)}


def read_package(file: Path) -> dict[str, bytes]:
    """Return the metadata files of a Debian package by path."""
    words = ["dpkg-deb", "--fsys-tarfile", str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as unpacking:
        assert unpacking.stdout is not None
        files = dict(_members(unpacking.stdout))
    if unpacking.returncode:
        raise subprocess.CalledProcessError(unpacking.returncode, words)
    return {name: content for name, content in files.items() if content is not None}


def read_image(file: Path) -> tuple[dict[str, bytes], Mapping[str, Any]]:
    """Return the metadata files of an image (``docker save``) by path, and its configuration."""
    files: dict[str, bytes] = {}
    with tarfile.open(file) as archive:

        def member(name: str) -> IO[bytes]:
            content = archive.extractfile(name)
            assert content is not None, name
            return content

        [manifest] = json.load(member("manifest.json"))
        for layer in manifest["Layers"]:
            members = dict(_members(member(layer)))
            for removed in (_removed(name) for name, content in members.items() if content is None):
                files = {
                    path: kept for path, kept in files.items() if not f"{path}/".startswith(f"{removed}/")
                }
            files |= {name: content for name, content in members.items() if content is not None}
        return files, json.load(member(manifest["Config"]))["config"]


def _removed(whiteout: str) -> str:
    """Return the path that a whiteout file removes from lower layers: its folder, or a file in its folder."""
    folder, _, name = whiteout.rpartition("/")
    return folder if name == ".wh..wh..opq" else f"{folder}/{name.removeprefix('.wh.')}".lstrip("/")


def read_environment(site: Path) -> dict[str, bytes]:
    """Return the metadata files of the distributions in a folder ``site-packages`` by path."""
    found = ((str(path.relative_to(site)), path) for path in site.glob("*.dist-info/**/*"))
    return {name: path.read_bytes() for name, path in found if READ.search(name) and path.is_file()}


def _members(stream: IO[bytes]) -> Iterator[tuple[str, bytes | None]]:
    """Yield the path and content of each metadata file in a tar archive. None: the path was deleted."""
    with tarfile.open(fileobj=stream, mode="r|*") as archive:
        for entry in archive:
            name = entry.name.removeprefix("./")
            if name.rpartition("/")[2].startswith(".wh."):
                yield name, None
            elif entry.isfile() and READ.search(name):
                content = archive.extractfile(entry)
                assert content is not None
                yield name, content.read()


def distributions(files: Mapping[str, bytes]) -> list[InstalledDistribution]:
    """Return the Python distributions in a mapping of paths to contents, sorted by name."""
    folders: dict[str, dict[str, bytes]] = defaultdict(dict)
    for path, content in sorted(files.items()):
        if found := DIST_INFO.search(path):
            folders[path[: found.start(2)]][found[2]] = content
    read = []
    for inside in folders.values():
        if "METADATA" not in inside:
            continue
        wheel = BytesParser().parsebytes(inside.get("WHEEL", b""))
        record = inside.get("RECORD", b"").decode()
        read.append(
            InstalledDistribution(
                metadata=BytesParser().parsebytes(inside["METADATA"]),
                tags=frozenset(map(str, wheel.get_all("Tag", []))),
                paths=tuple(row[0] for row in csv.reader(record.splitlines()) if row),
                texts=tuple(
                    text.decode("utf-8", "replace") for name, text in inside.items() if TEXT.search(name)
                ),
                sboms=tuple(json.loads(text) for name, text in inside.items() if name.startswith("sboms/")),
            )
        )
    return sorted(read, key=lambda each: each.name)


def python_components(
    found: Sequence[InstalledDistribution], wheels: Mapping[str, str], console: Iterable[Component] = ()
) -> list[Component]:
    """Return Python distributions and the libraries in their wheels.

    :param wheels: SHA-256 digests by file name, as in packaging/wheels.sha256.
    :param console: components that dataapi's own distribution contains.
    """
    purls = {each.name: each.purl for each in found}
    components = {each.purl: each for each in console}
    for each in found:
        inside = {part.purl: part for sbom in each.sboms for part in _bundled(sbom, each.name)}
        required = [purls[name] for name in each.requirements() if name in purls]
        if each.name == "dataapi-daemon":
            required += [part.purl for part in console]
        digests = {
            digest
            for name, digest in wheels.items()
            if (parts := wheel_parts(name))
            and parts[:2] == (each.name, each.version)
            and parts[2] & each.tags
        }
        hashes = tuple(("SHA-256", digest) for digest in digests) if len(digests) == 1 else ()
        requires = tuple(sorted({*required, *inside}))
        components[each.purl] = Component(each.purl, each.name, each.version, each.licence, hashes, requires)
        components |= inside
    return list(components.values())


def wheel_parts(file: str) -> tuple[str, str, frozenset[str]] | None:
    """Return the normalized name, the version and the tags in a wheel's file name; None for other files."""
    if not file.endswith(".whl"):
        return None
    name, version, *_, pythons, abis, platforms = file.removesuffix(".whl").split("-")
    tags = {
        f"{python}-{abi}-{platform}"
        for python in pythons.split(".")
        for abi in abis.split(".")
        for platform in platforms.split(".")
    }
    return normalized(name), version, frozenset(tags)


def _bundled(sbom: Mapping[str, Any], container: str) -> Iterator[Component]:
    """Yield the components in an SBOM inside a wheel, except the wheel's own distribution."""
    for part in sbom.get("components", []):
        if normalized(part["name"]) == container:
            continue
        # Remove the qualifiers of the package URL: they contain file URLs of the build machine.
        purl = part.get(
            "purl", f"pkg:generic/{quote(part['name'])}@{quote(part.get('version', ''))}"
        ).partition("?")[0]
        licences = [
            each.get("expression") or each["license"].get("id") or "" for each in part.get("licenses", [])
        ]
        hashes = tuple((each["alg"], each["content"]) for each in part.get("hashes", []))
        yield Component(
            purl, part["name"], part.get("version", ""), " AND ".join(filter(None, licences)), hashes
        )


def console_components(notices: str, lock: Mapping[str, Any]) -> list[Component]:
    """Return the libraries that the console's files contain.

    :param notices: text of NOTICES.txt.
    :param lock: content of console/package-lock.json.
    """
    listed = {(name, version): licence for name, version, licence in NOTICE.findall(notices)}
    purls = {name: _npm(name, version) for name, version in listed}
    contained = {name: names.split(", ") for name, names in CONTAINED.findall(notices)}
    packages = {
        (path.rpartition("node_modules/")[2], package["version"]): package
        for path, package in lock["packages"].items()
        if path
    }
    components = []
    for (name, version), licence in listed.items():
        package = packages[name, version]
        algorithm, _, digest = package["integrity"].partition("-")
        hashes = ((algorithm.upper().replace("SHA", "SHA-"), base64.b64decode(digest).hex()),)
        required = {purls[each] for each in package.get("dependencies", {}) if each in purls}
        inside = {_npm(each) for each in contained.get(name, [])}
        requires = tuple(sorted(required | inside))
        components.append(Component(_npm(name, version), name, version, licence, hashes, requires))
    # Packages inside another package have no known versions.
    names = sorted({name for names in contained.values() for name in names})
    return [*components, *(Component(_npm(name), name) for name in names)]


def _npm(name: str, version: str = "") -> str:
    return f"pkg:npm/{name.replace('@', '%40')}{version and f'@{version}'}"


def debian_components(files: Mapping[str, bytes]) -> list[Component]:
    """Return the Debian packages that are installed in an image."""
    if DPKG not in files:
        return []
    system = dict(line.split("=", 1) for line in files[SYSTEM].decode().splitlines() if "=" in line)
    distribution = f"{system['ID']}-{system['VERSION_ID']}".replace('"', "")
    components = []
    for paragraph in files[DPKG].decode().strip().split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
        if fields["Status"].endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{quote(name)}@{quote(version, safe=':~')}"
            purl += f"?arch={fields['Architecture']}&distro={distribution}"
            components.append(Component(purl, name, version))
    return components
