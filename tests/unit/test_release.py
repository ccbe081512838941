"""SBOMs, licences and checks of a release's files (packaging/)."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import checks
import components
import deb
import debian_copyright
import pytest
import release
import sbom
from support import documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SITE = "lib/python3.11/site-packages"
NOTICES = documents.ROOT / "daemon" / "dataapi" / "web" / "console" / "assets" / "NOTICES.txt"
LOCKED = dict(re.findall(r"^([\w.-]+)==(\S+)", documents.read("requirements.lock"), re.MULTILINE))
PYTHONS = (11, 13)
"""Minor versions of Python 3 in the image and in Debian 12 and 13."""
GLIBC = 36
"""Minor version of glibc 2 in Debian 12."""


def distribution(name: str, version: str, tag: str = "py3-none-any", **more: str) -> dict[str, str]:
    """Return the metadata files of a distribution by path. ``more`` contains additional header fields."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    header = {"Name": name, "Version": version, "License_Expression": "MIT"} | more
    lines = [f"{field.replace('_', '-')}: {value}\n" for field, value in header.items()]
    return {
        f"{folder}/METADATA": "".join(lines),
        f"{folder}/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n",
        f"{folder}/RECORD": f"{folder}/METADATA,,\n",
        f"{folder}/licenses/LICENSE": "MIT License\n\nCopyright (c) 2026 The authors\n",
    }


def own_distribution(**more: str) -> dict[str, str]:
    files = distribution("dataapi-daemon", "0.1.0", **more)
    return files | {components.NOTICES: NOTICES.read_text("utf-8")}


def locked_distributions() -> dict[str, str]:
    """Return the metadata files of all locked distributions and of dataapi, below a package's folder."""
    files = own_distribution()
    for name, version in LOCKED.items():
        files |= distribution(name, version)
    return {f"{SITE}/{path}": text for path, text in files.items()}


def write_wheel(folder: Path, files: Mapping[str, str], tag: str = "py3-none-any") -> Path:
    path = folder / f"dataapi_daemon-0.1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def write_package(folder: Path, files: Mapping[str, str]) -> Path:
    """Write a Debian package, or skip the test if dpkg is not installed."""
    program = shutil.which("dpkg-deb")
    if program is None:
        pytest.skip("dpkg is not installed")
    control = "Package: dataapi\nVersion: 0.1.0\nArchitecture: amd64\nMaintainer: x\nDescription: x\n"
    tree = folder / "tree"
    for name, text in {"DEBIAN/control": control, **files}.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    target = folder / "dataapi_0.1.0_amd64.deb"
    words = [program, "-Znone", "--root-owner-group", "--build", str(tree), str(target)]
    subprocess.run(words, check=True, capture_output=True)
    return target


def tar(files: Mapping[str, str | bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def write_image(folder: Path, layers: Iterable[Mapping[str, str]], **configuration: Any) -> Path:
    packed = {f"{index}.tar": tar(files) for index, files in enumerate(layers)}
    manifest = [{"Config": "config.json", "Layers": list(packed)}]
    path = folder / "dataapi-0.1.0-amd64-image.tar"
    content = {"manifest.json": json.dumps(manifest), "config.json": json.dumps({"config": configuration})}
    path.write_bytes(tar({**content, **packed}))
    return path


def read_sbom(file: Path) -> dict[str, Any]:
    """Write the SBOM of a file and return the SBOM and its components by purl."""
    document = json.loads(sbom.write(file).read_text("utf-8"))
    return {**document, "components": {each["purl"]: each for each in document["components"]}}


def test_sbom_of_a_wheel_lists_the_libraries_of_the_console(tmp_path: Path) -> None:
    file = write_wheel(tmp_path, own_distribution())
    document = read_sbom(file)
    described = document["metadata"]["component"]
    assert described["purl"] == "pkg:pypi/dataapi-daemon@0.1.0"
    assert described["hashes"] == [
        {"alg": "SHA-256", "content": hashlib.sha256(file.read_bytes()).hexdigest()}
    ]
    found = document["components"]
    noticed = components.NOTICE.findall(NOTICES.read_text("utf-8"))
    assert len(noticed) > 50
    for name, version, licence in noticed:
        each = found[f"pkg:npm/{name.replace('@', '%40')}@{version}"]
        assert each["licenses"] == [{"expression": licence}]
        assert each["hashes"][0]["alg"] == "SHA-512"
        assert len(each["hashes"][0]["content"]) == 128
    requires = {each["ref"]: each["dependsOn"] for each in document["dependencies"]}
    [swagger] = (purl for purl in found if purl.startswith("pkg:npm/swagger-ui-dist@"))
    assert "pkg:npm/immutable" in requires[swagger]
    [renderer] = (purl for purl in found if purl.startswith("pkg:npm/react-dom@"))
    assert any(purl.startswith("pkg:npm/react-dom@") for purl in requires[described["purl"]])
    assert any(purl.startswith("pkg:npm/scheduler@") for purl in requires[renderer])


def test_sbom_of_the_same_file_is_the_same(tmp_path: Path) -> None:
    file = write_wheel(tmp_path, own_distribution())
    assert sbom.write(file).read_bytes() == sbom.write(file).read_bytes()


def test_sbom_of_a_package_lists_distributions_and_what_they_bundle(tmp_path: Path) -> None:
    crate = {
        "name": "ring",
        "version": "1.0",
        "purl": "pkg:cargo/ring@1.0?download_url=file:///build/ring",
        "licenses": [{"license": {"id": "MIT"}}],
        "hashes": [{"alg": "SHA-256", "content": "0" * 64}],
    }
    bundled = json.dumps({"components": [crate, {"name": "cffi", "purl": "pkg:pypi/cffi@1"}]})
    version = LOCKED["cffi"]
    [(file, digest)] = (
        (name, digest)
        for name, digest in sbom.locked_wheels().items()
        if name.startswith(f"cffi-{version}-cp311-cp311-")
        and name.endswith("x86_64.whl")
        and "manylinux" in name
    )
    parts = components.wheel_parts(file)
    assert parts is not None
    files = {
        **own_distribution(Requires_Dist="cffi>=1"),
        **distribution("cffi", version, min(parts[2]), Requires_Dist="absent; extra == 'test'"),
        f"cffi-{version}.dist-info/sboms/x.cdx.json": bundled,
    }
    document = read_sbom(write_package(tmp_path, {f"{SITE}/{path}": text for path, text in files.items()}))
    assert document["metadata"]["component"]["purl"] == "pkg:deb/dataapi/dataapi@0.1.0?arch=amd64"
    found = document["components"]
    assert found[f"pkg:pypi/cffi@{version}"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert found["pkg:cargo/ring@1.0"]["licenses"] == [{"expression": "MIT"}]
    assert "pkg:pypi/cffi@1" not in found
    requires = {each["ref"]: each["dependsOn"] for each in document["dependencies"]}
    assert f"pkg:pypi/cffi@{version}" in requires["pkg:pypi/dataapi-daemon@0.1.0"]
    assert requires[f"pkg:pypi/cffi@{version}"] == ["pkg:cargo/ring@1.0"]
    assert requires["pkg:deb/dataapi/dataapi@0.1.0?arch=amd64"] == ["pkg:pypi/dataapi-daemon@0.1.0"]


def test_sbom_of_an_image_lists_debian_packages_and_no_deleted_files(tmp_path: Path) -> None:
    status = """Package: libc6
Status: install ok installed
Architecture: arm64
Version: 2.36-9+deb12u14

Package: gone
Status: deinstall ok config-files
Architecture: arm64
Version: 1
"""
    first = {
        components.DPKG: status,
        components.SYSTEM: 'ID=debian\nVERSION_ID="12"\n',
        **{f"usr/{SITE}/{path}": text for path, text in distribution("pip", "25.0").items()},
        **{f"usr/{SITE}/{path}": text for path, text in distribution("wheel", "0.45").items()},
        **{f"etc/{SITE}/{path}": text for path, text in distribution("replaced", "1").items()},
    }
    second = {
        **{f"etc/{SITE}/{path}": text for path, text in distribution("kept", "2").items()},
        "etc/.wh..wh..opq": "",
        f"usr/{SITE}/.wh.pip-25.0.dist-info": "",
        **{f"opt/dataapi/{SITE}/{path}": text for path, text in own_distribution().items()},
    }
    document = read_sbom(write_image(tmp_path, [first, second], Env=["PYTHON_VERSION=3.11.14"]))
    found = {purl for purl in document["components"] if not purl.startswith("pkg:npm/")}
    assert found == {
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=arm64&distro=debian-12",
        "pkg:generic/python@3.11.14",
        "pkg:pypi/dataapi-daemon@0.1.0",
        "pkg:pypi/kept@2",
        "pkg:pypi/wheel@0.45",
    }


def test_sboms_conform_to_the_schema(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx.validation.json", reason="cyclonedx-python-lib is not installed")
    file = write_wheel(tmp_path, own_distribution())
    path = sbom.write(file)
    assert list(checks.sbom_problems(file)) == []
    broken = json.loads(path.read_text("utf-8"))
    broken["components"][0]["type"] = "thing"
    path.write_text(json.dumps(broken), "utf-8")
    assert [problem for problem in checks.sbom_problems(file) if "invalid" in problem]


def test_checks_accept_complete_files(tmp_path: Path) -> None:
    file = write_wheel(tmp_path, own_distribution())
    path = sbom.write(file)
    sums = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in (file, path)]
    (tmp_path / checks.SUMS).write_text("".join(sums))
    assert list(checks.problems(tmp_path)) == []
    path.unlink()
    assert list(checks.problems(tmp_path)) == [
        f"{file.name}: the SBOM is missing",
        "SHA256SUMS: the checksums do not match the files",
    ]


def test_checks_find_problems_of_a_wheel(tmp_path: Path) -> None:
    files = own_distribution(tag="cp311-cp311-linux_x86_64") | {"dataapi/fast.cpython-311.so": ""}
    file = write_wheel(tmp_path, {path: text for path, text in files.items() if "LICENSE" not in path})
    assert list(checks.wheel_problems(file)) == [
        "dataapi/fast.cpython-311.so is a native library",
        "the tags are cp311-cp311-linux_x86_64 (expected py3-none-any)",
        "the licence is missing",
    ]


def test_checks_find_problems_of_an_sbom(tmp_path: Path) -> None:
    file = write_wheel(tmp_path, own_distribution())
    path = sbom.write(file)
    document = json.loads(path.read_text("utf-8"))
    document["metadata"]["component"]["hashes"][0]["content"] = "0" * 64
    [first] = document["components"][:1]
    first["licenses"] = [{"expression": "AGPL-3.0-only"}]
    document["dependencies"][0]["dependsOn"].append("pkg:npm/absent@1")
    path.write_text(json.dumps(document), "utf-8")
    found = [problem for problem in checks.sbom_problems(file) if "invalid" not in problem]
    assert found == [
        "the SBOM describes another file",
        "the SBOM has no component pkg:npm/absent@1",
        f"{first['purl']} has the licence AGPL-3.0-only",
    ]


def test_checks_find_problems_of_a_package(tmp_path: Path) -> None:
    files = {f"usr/lib/dataapi/{path}": text for path, text in locked_distributions().items()}
    copyrights = "".join(
        f"Files: x/{path.split('/')[-2]}/*\n" for path in files if path.endswith(".dist-info/METADATA")
    )
    package = write_package(tmp_path, {**files, components.COPYRIGHT: copyrights})
    assert list(checks.package_problems(package)) == []
    shutil.rmtree(tmp_path / "tree")
    changed = {path: text for path, text in files.items() if "/attrs-" not in path}
    changed |= {
        f"usr/lib/dataapi/{SITE}/{path}": text
        for path, text in distribution("extra", "1", License_Expression="GPL-3.0-only").items()
    }
    renamed = write_package(tmp_path, {**changed, components.COPYRIGHT: copyrights})
    renamed = renamed.rename(tmp_path / "dataapi_0.1.0_arm64.deb")
    assert list(checks.package_problems(renamed)) == [
        "the control file has dataapi 0.1.0 for amd64",
        "extra 1 is not in requirements.lock",
        "extra has the licence GPL-3.0-only",
        "attrs is missing",
        "the copyright file does not mention extra",
    ]


def test_checks_find_problems_of_an_image(tmp_path: Path) -> None:
    files = {f"opt/dataapi/{path}": text for path, text in locked_distributions().items()}
    label = "org.opencontainers.image"
    labels = dict.fromkeys(
        [f"{label}.{name}" for name in ("title", "description", "licenses", "version", "revision", "source")],
        "x",
    )
    assert (
        list(checks.image_problems(write_image(tmp_path, [files], User="10001:10001", Labels=labels))) == []
    )
    labels[f"{label}.revision"] = ""
    assert list(checks.image_problems(write_image(tmp_path, [files], User="root", Labels=labels))) == [
        "the label org.opencontainers.image.revision is empty",
        "the user is 'root' (expected numbers, not root's)",
    ]


@pytest.mark.parametrize(
    ("name", "expression", "accepted"),
    [
        ("x", "MIT", True),
        ("x", "GPL-2.0-only OR MIT", True),
        ("x", "(MIT OR Apache-2.0) AND Unicode-3.0", True),
        ("x", "MIT AND (GPL-2.0-only OR (ISC AND AGPL-3.0-only))", False),
        ("x", "MIT AND GPL-2.0-only", False),
        ("x", "", False),
        ("psycopg", "LGPL-3.0-only", True),
        ("x", "LGPL-3.0-only", False),
    ],
)
def test_licence_expressions_are_evaluated(name: str, expression: str, accepted: bool) -> None:
    assert checks.is_accepted(name, expression) is accepted


def installed() -> list[components.InstalledDistribution]:
    """Return the locked libraries as installed in the tests' environment, in any version."""
    found = components.distributions(components.read_environment(Path(sysconfig.get_path("purelib"))))
    return [each for each in found if each.name in LOCKED]


def test_licences_of_all_python_libraries_are_accepted() -> None:
    """The image and the Debian package contain the libraries."""
    found = installed()
    missing = LOCKED.keys() - {each.name for each in found}
    if missing:
        pytest.skip(f"not installed: {', '.join(sorted(missing))}")
    assert [
        (each.name, each.licence) for each in found if not checks.is_accepted(each.name, each.licence)
    ] == []


def test_debian_copyright_file_has_a_paragraph_for_each_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The format is Debian's machine-readable copyright format 1.0."""
    found = installed()
    site = tmp_path / SITE
    (site / components.NOTICES).parent.mkdir(parents=True)
    shutil.copy(NOTICES, site / components.NOTICES)
    monkeypatch.setattr(debian_copyright, "distributions", lambda _files: found)
    text = documents.read("packaging/debian/copyright") + debian_copyright.paragraphs(tmp_path)
    _header, *paragraphs = [fields(paragraph) for paragraph in text.strip().split("\n\n")]
    libraries = [each for each in paragraphs if "Files" in each]
    for each in libraries:
        assert each.keys() == {"Files", "Copyright", "License"}
        assert all(value.strip() for value in each.values())
    patterns = {pattern for each in libraries for pattern in each["Files"].split()}
    for library in found:
        [folder] = {path.partition("/")[0] for path in library.paths if path.endswith(".dist-info/METADATA")}
        assert f"{debian_copyright.SITE}/{folder}/*" in patterns
    by_pattern = {pattern: each for each in libraries for pattern in each["Files"].split()}
    attrs = by_pattern[f"{debian_copyright.SITE}/attr/*"]
    assert "Hynek Schlawack" in attrs["Copyright"]
    assert attrs["License"].startswith("MIT\n")
    assert "Permission is hereby granted" in attrs["License"]
    psycopg = by_pattern[f"{debian_copyright.SITE}/psycopg/*"]
    assert psycopg["License"].split("\n") == ["LGPL-3.0-only", " See /usr/share/common-licenses/LGPL-3."]
    assert f"{debian_copyright.SITE}/dataapi/web/console/assets/*" in patterns


def fields(paragraph: str) -> dict[str, str]:
    """Return the fields of a paragraph after checking its syntax."""
    found = re.findall(r"^([A-Z][\w-]*): (.*(?:\n .*)*)", paragraph, re.MULTILINE)
    assert "\n".join(f"{name}: {value}" for name, value in found) == paragraph
    assert len(dict(found)) == len(found)
    return dict(found)


def test_missing_build_tools_are_named_before_the_package_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deb, "BUILD_PATH", str(tmp_path))
    monkeypatch.setattr(deb, "build", lambda _folder: pytest.fail("the build was started"))
    expected = "The Debian package cannot be built: install debhelper dpkg-dev python3-venv with apt-get."
    with pytest.raises(SystemExit, match=re.escape(expected)):
        deb.package(tmp_path)
    for name in ("dpkg-buildpackage", "python3"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert deb.missing() == ["debhelper"]


def test_locked_wheels_are_those_of_the_lock() -> None:
    lock = documents.read("requirements.lock")
    wheels = sbom.locked_wheels()
    assert all(f"--hash=sha256:{digest}" in lock for digest in wheels.values())
    named = {(parts[0], parts[1]) for name in wheels if (parts := components.wheel_parts(name))}
    assert named == set(LOCKED.items())


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
@pytest.mark.parametrize("python", PYTHONS)
def test_all_locked_libraries_have_wheels_for(architecture: str, python: int) -> None:
    """The image and the Debian package are built on amd64 and arm64 without a compiler."""
    supported = {
        parts[0]
        for name in sbom.locked_wheels()
        if (parts := components.wheel_parts(name))
        and any(runs(tag, architecture, python) for tag in parts[2])
    }
    assert LOCKED.keys() - supported == set()


def runs(tag: str, architecture: str, python: int) -> bool:
    """Return whether a wheel with this tag can be installed on Debian 12 or later."""
    interpreter, abi, platform = tag.split("-")
    if interpreter in {"py3", f"py3{python}"}:
        fits = abi == "none"
    else:
        version = re.fullmatch(r"cp3(\d+)", interpreter)
        fits = version is not None and (
            (abi == interpreter and int(version[1]) == python)
            or (abi == "abi3" and int(version[1]) <= python)
        )
    glibc = re.fullmatch(rf"manylinux(?:_2_(\d+)|2014|2010|1)_{architecture}", platform)
    return fits and (platform == "any" or (glibc is not None and int(glibc[1] or 17) <= GLIBC))


def test_image_is_built_for_a_platform_from_a_pinned_base(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IMAGE_BASE", "IMAGE_PLATFORM", "IMAGE_SOURCE"):
        monkeypatch.delenv(name, raising=False)
    assert release.image_options("1.0", "abc") == ["--build-arg=VERSION=1.0", "--build-arg=REVISION=abc"]
    base = f"python@sha256:{'0' * 64}"
    monkeypatch.setenv("IMAGE_BASE", base)
    monkeypatch.setenv("IMAGE_PLATFORM", "linux/arm64")
    options = release.image_options("1.0", "abc")
    assert release.image_architecture() == "arm64"
    assert {f"--build-arg=BASE={base}", "--platform=linux/arm64"} <= set(options)
    recipe = documents.read("Dockerfile")
    assert set(re.findall(r"^ARG (\w+)", recipe, re.MULTILINE)) == {"BASE", "VERSION", "REVISION", "SOURCE"}
    assert set(re.findall(r"^FROM (\S+)", recipe, re.MULTILINE)) == {"${BASE}"}
    assert not re.search(r"amd64|x86|aarch64|arm64", recipe)


def test_workflow_only_builds_with_make_release() -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load(documents.read(".github/workflows/release.yml"))
    assert workflow["permissions"] == {}
    job = workflow["jobs"]["release"]
    assert {name for name, access in job["permissions"].items() if access == "write"} == {
        "artifact-metadata",
        "attestations",
        "id-token",
    }
    steps = job["steps"]
    assert sum("make release" in step.get("run", "") for step in steps) == 1
    commands = "\n".join(step.get("run", "") for step in steps)
    assert not re.search(r"^\s*(pip|docker|buildah|dpkg|python)", commands, re.MULTILINE)
    actions = [step["uses"] for step in steps if "uses" in step]
    # Tags can be moved to other commits.
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in actions)
    described = [step["with"] for step in steps if step.get("uses", "").startswith("actions/attest@")]
    assert {"subject-checksums": "dist/SHA256SUMS"} in described
    sboms = [each for each in described if "sbom-path" in each]
    assert [each["sbom-path"] for each in sboms] == [f"{each['subject-path']}{sbom.SUFFIX}" for each in sboms]
    assert [each["subject-path"].rpartition(".")[2] for each in sboms] == ["whl", "deb", "tar"]
