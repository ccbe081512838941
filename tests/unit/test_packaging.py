"""What is installed: every package and every file that the product needs at run time."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP_FILES = {"setup.cfg", "pyproject.toml", "README.md", "LICENSE"}
SOURCES = {"dataapi": ROOT / "daemon" / "dataapi", "dataapi.plugins": ROOT / "plugins"}


def _setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string((ROOT / "setup.cfg").read_text())
    return parser


def _listed_packages() -> set[str]:
    return set(_setup()["options"]["packages"].split())


def test_listed_packages_are_those_of_the_tree() -> None:
    found = {"twisted.plugins"}
    for name, folder in SOURCES.items():
        for file in folder.rglob("*.py"):
            found.add(".".join((name, *file.parent.relative_to(folder).parts)))
    assert _listed_packages() == found


def test_every_package_has_its_init_file_and_the_drop_in_has_none() -> None:
    """``twisted/plugins`` must stay a folder of Twisted's; everything else is a package of its own."""
    for name in _listed_packages() - {"twisted.plugins", "dataapi.plugins"}:
        assert (ROOT / "daemon" / Path(*name.split(".")) / "__init__.py").is_file(), name
    assert not list((ROOT / "twisted").rglob("__init__.py"))


def test_every_kind_of_data_file_is_listed() -> None:
    listed = _setup()["options.package_data"]
    carried = set()
    for package, patterns in listed.items():
        folder = "**/" if package == "*" else f"{package.removeprefix('dataapi.').replace('.', '/')}/"
        for pattern in patterns.split(","):
            carried |= set(SOURCES["dataapi"].glob(folder + pattern.strip()))
    files = {file for file in SOURCES["dataapi"].rglob("*") if file.is_file()}
    assert {file for file in files if file.suffix not in {".py", ".pyc"}} <= carried


def test_the_lowest_versions_that_are_tested_are_those_that_are_allowed() -> None:
    """``make test-lowest`` runs with what setup.cfg promises, so that its bounds are true."""
    setup = _setup()
    extras = setup["options.extras_require"]
    required = "\n".join([setup["options"]["install_requires"], extras["embedded"], extras["unit"]])
    bounds = re.findall(r"^([\w-]+)(?:\[.*\])?>=([\w.]+)", required, re.MULTILINE)
    lines = (ROOT / "tests" / "lowest.txt").read_text().splitlines()
    assert lines[1:] == [f"{name}=={version}" for name, version in bounds]
    assert all(">=" in line for line in setup["options"]["install_requires"].split())


def test_what_a_service_is_installed_with_is_what_setup_cfg_allows() -> None:
    """``requirements.lock`` has every requirement, in a version that its bound takes, with hashes."""
    lines = (ROOT / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([\w-]+)==(\S+) \\$", lines, re.MULTILINE))
    setup = _setup()
    wanted = setup["options"]["install_requires"] + "\n" + setup["options.extras_require"]["otel"]
    required = re.findall(r"^([\w-]+)(?:\[.*\])?>=([\w.]+)", wanted, re.MULTILINE)
    assert len(required) > 10
    for name, bound in required:
        assert _numbers(locked[name.lower()]) >= _numbers(bound), name
    assert lines.count("==") == len(re.findall(r"==\S+ \\\n    --hash=sha256:", lines))


def test_each_dependency_is_accounted_for() -> None:
    setup = _setup()
    extras = setup["options.extras_require"]
    required = "\n".join([setup["options"]["install_requires"], extras["otel"], extras["embedded"]])
    page = (ROOT / "docs" / "reference" / "dependencies.md").read_text("utf-8")
    listed = re.findall(r"^\| ([\w-]+) \|", page, re.MULTILINE)
    assert {name for name in listed if name != "Library"} == set(
        re.findall(r"^[\w-]+", required, re.MULTILINE)
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall("[0-9]+", version)))


def test_the_image_is_made_as_its_linter_wants() -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    found = subprocess.run([linter, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_the_image_gets_what_its_build_copies() -> None:
    """``.dockerignore`` leaves out everything but what an installation is made from."""
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert all((ROOT / name).exists() for name in kept)
    assert {*SETUP_FILES, "daemon", "plugins", "twisted", "requirements.lock"} == set(kept)


def test_compose_runs_the_service_behind_a_database_that_is_ready() -> None:
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert services["dataapi"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert "healthcheck" in services["database"]
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both distributions in a clone of the last commit, or in a copy of a tree without git."""
    pytest.importorskip("setuptools", reason="setuptools is not installed, nothing can be built")
    tree = tmp_path_factory.mktemp("build") / "clone"
    if (ROOT / ".git").exists() and shutil.which("git") is not None:
        subprocess.run(["git", "clone", "-q", str(ROOT), str(tree)], check=True)
    else:
        ignored = shutil.ignore_patterns(
            ".venv", "build", "dist", "*.egg-info", "node_modules", "__pycache__"
        )
        shutil.copytree(ROOT, tree, ignore=ignored)
    _build(tree)
    return tree


@pytest.fixture(scope="module")
def distributions(clone: Path) -> tuple[Path, Path]:
    """Give the source distribution, and the wheel that was built from it."""
    [source] = (clone / "dist").glob("*.tar.gz")
    [wheel] = (clone / "dist").glob("*.whl")
    return source, wheel


def _build(tree: Path) -> None:
    """Run the tree's own ``packaging/distributions.py``."""
    environ = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    words = [sys.executable, "-W", "ignore", "packaging/distributions.py", "dist"]
    subprocess.run(words, cwd=tree, env=environ, check=True, capture_output=True)


def test_what_is_built_from_one_commit_is_equal(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    # Not by tarfile: how it wants to be told that the archive is ours differs between Pythons.
    subprocess.run(["tar", "-xzf", str(distributions[0]), "-C", str(tmp_path)], check=True)
    [unpacked] = tmp_path.iterdir()
    for file in unpacked.rglob("*"):
        if file.is_file():
            file.chmod(0o700 if file.stat().st_mode & 0o100 else 0o600)
            if file.name != "setup.cfg":
                os.utime(file, (0, 0))
    _build(unpacked)
    for file in distributions:
        assert (unpacked / "dist" / file.name).read_bytes() == file.read_bytes(), file.name


def test_wheel_from_the_source_distribution_is_complete(
    clone: Path, distributions: tuple[Path, Path]
) -> None:
    with zipfile.ZipFile(distributions[1]) as wheel:
        packed = set(wheel.namelist())
    for name, source in SOURCES.items():
        folder = clone / source.relative_to(ROOT)
        for file in folder.rglob("*"):
            if file.is_file() and file.suffix != ".pyc" and file.name != "dropin.cache":
                assert f"{name.replace('.', '/')}/{file.relative_to(folder)}" in packed
    assert "twisted/plugins/dataapi_plugin.py" in packed
    assert not any(name.startswith(("tests/", "etc/")) for name in packed)


def test_source_distribution_has_what_an_operator_and_a_packager_need(
    distributions: tuple[Path, Path],
) -> None:
    with tarfile.open(distributions[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"etc/dataapi.ini", "Makefile", "README.md", "tests/unit/test_packaging.py", ".ci/run"} <= names
    assert {
        "LICENSE",
        "SECURITY.md",
        "requirements.lock",
        "packaging/deb.py",
        "packaging/debian/rules",
    } <= names


def test_installed_wheel_gives_twistd_its_command(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    """``twistd dataapi`` and ``dataapi`` work from another folder, with the modules of the wheel."""
    target = tmp_path / "installed"
    with zipfile.ZipFile(distributions[1]) as wheel:
        wheel.extractall(target)
    environ = {**os.environ, "PYTHONPATH": str(target)}

    def run(*command: str) -> str:
        return subprocess.run(
            [sys.executable, "-W", "ignore", *command],
            cwd=tmp_path,
            env=environ,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    assert run("-c", "import dataapi.cli.main; print(dataapi.__file__)").startswith(str(target))
    assert run("-c", "import dataapi.plugins; print(dataapi.plugins.__file__)").startswith(str(target))
    assert "--config" in run("-c", "from twisted.scripts.twistd import run; run()", "dataapi", "--help")
    assert "check-config" in run("-m", "dataapi.cli.main", "--help")
