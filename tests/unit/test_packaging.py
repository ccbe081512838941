"""The distributions contain every package and every file needed at run time."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path

import chart
import checks
import dataapi
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


def test_listed_packages_match_the_source_tree() -> None:
    packages = {"twisted.plugins"}
    for name, folder in SOURCES.items():
        for file in folder.rglob("*.py"):
            packages.add(".".join((name, *file.parent.relative_to(folder).parts)))
    assert _listed_packages() == packages


def test_every_package_has_an_init_file_except_twisted_plugins() -> None:
    """``twisted/plugins`` must remain a part of Twisted's package."""
    for name in _listed_packages() - {"twisted.plugins", "dataapi.plugins"}:
        assert (ROOT / "daemon" / Path(*name.split(".")) / "__init__.py").is_file(), name
    assert not list((ROOT / "twisted").rglob("__init__.py"))


def test_new_modules_can_be_imported_without_another_installation() -> None:
    """Python's path contains daemon/, so all files in daemon/ must be in the wheel."""
    assert Path(dataapi.__path__[0]) == SOURCES["dataapi"]
    others = [file.name for file in (ROOT / "daemon").iterdir() if file != SOURCES["dataapi"]]
    assert [name for name in others if not name.endswith(".egg-info")] == []
    assert Path(import_module("dataapi.plugins").__path__[0]) == SOURCES["dataapi.plugins"]


def test_every_kind_of_data_file_is_listed() -> None:
    listed = _setup()["options.package_data"]
    included = set()
    for package, patterns in listed.items():
        folder = "**/" if package == "*" else f"{package.removeprefix('dataapi.').replace('.', '/')}/"
        for pattern in patterns.split(","):
            included |= set(SOURCES["dataapi"].glob(folder + pattern.strip()))
    files = {file for file in SOURCES["dataapi"].rglob("*") if file.is_file()}
    assert {file for file in files if file.suffix not in {".py", ".pyc"}} <= included


def test_lowest_tested_versions_are_the_lowest_allowed_ones() -> None:
    """``make test-lowest`` installs the versions in tests/lowest.txt."""
    setup = _setup()
    extras = setup["options.extras_require"]
    required = "\n".join([setup["options"]["install_requires"], extras["embedded"], extras["unit"]])
    bounds = re.findall(r"^([\w-]+)(?:\[.*\])?>=([\w.]+)", required, re.MULTILINE)
    lines = (ROOT / "tests" / "lowest.txt").read_text().splitlines()
    assert lines[1:] == [f"{name}=={version}" for name, version in bounds]
    assert all(">=" in line for line in setup["options"]["install_requires"].split())


def test_locked_requirements_satisfy_setup_cfg_and_have_hashes() -> None:
    lines = (ROOT / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([\w-]+)==(\S+) \\$", lines, re.MULTILINE))
    setup = _setup()
    requirements = setup["options"]["install_requires"] + "\n" + setup["options.extras_require"]["otel"]
    required = re.findall(r"^([\w-]+)(?:\[.*\])?>=([\w.]+)", requirements, re.MULTILINE)
    assert len(required) > 10
    for name, bound in required:
        assert _numbers(locked[name.lower()]) >= _numbers(bound), name
    assert lines.count("==") == len(re.findall(r"==\S+ \\\n    --hash=sha256:", lines))


def test_each_dependency_is_documented() -> None:
    setup = _setup()
    extras = setup["options.extras_require"]
    required = "\n".join(
        [setup["options"]["install_requires"], extras["otel"], extras["embedded"], extras["notify"]]
    )
    page = (ROOT / "docs" / "reference" / "dependencies.md").read_text("utf-8")
    listed = re.findall(r"^\| ([\w-]+) \|", page, re.MULTILINE)
    assert {name for name in listed if name != "Library"} == set(
        re.findall(r"^[\w-]+", required, re.MULTILINE)
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall("[0-9]+", version)))


@pytest.mark.parametrize("name", ["Dockerfile", ".devcontainer/Dockerfile"])
def test_dockerfile_passes_its_linter(name: str) -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    result = subprocess.run([linter, str(ROOT / name)], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")


def test_build_context_contains_only_needed_files() -> None:
    included = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    ]
    assert all((ROOT / name).exists() for name in included)
    assert {*SETUP_FILES, "daemon", "plugins", "twisted", "requirements.lock"} == set(included)


def test_compose_starts_the_service_after_the_database() -> None:
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
    """Return the source distribution and the wheel built from it."""
    [source] = (clone / "dist").glob("*.tar.gz")
    [wheel] = (clone / "dist").glob("*.whl")
    return source, wheel


def _build(tree: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    words = [sys.executable, "-W", "ignore", "packaging/distributions.py", "dist"]
    subprocess.run(words, cwd=tree, env=environ, check=True, capture_output=True)


def test_builds_of_the_same_commit_are_identical(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    # Not tarfile, because its filter for trusted archives differs between Python versions.
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
        contents = set(wheel.namelist())
    for name, source in SOURCES.items():
        folder = clone / source.relative_to(ROOT)
        for file in folder.rglob("*"):
            if file.is_file() and file.suffix != ".pyc" and file.name != "dropin.cache":
                assert f"{name.replace('.', '/')}/{file.relative_to(folder)}" in contents
    assert "twisted/plugins/dataapi_plugin.py" in contents
    assert not any(name.startswith(("tests/", "etc/")) for name in contents)


def test_wheel_is_pure_python_and_passes_the_checks_of_a_release(distributions: tuple[Path, Path]) -> None:
    assert distributions[1].name.endswith("-py3-none-any.whl")
    assert list(checks.wheel_problems(distributions[1])) == []
    assert list(checks.source_problems(distributions[0])) == []


def test_archive_of_the_chart_is_complete_and_reproducible(
    distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    packed = chart.archive(distributions[0], tmp_path)
    with tarfile.open(packed) as archive:
        names = set(archive.getnames())
    folder = ROOT / "packaging" / "helm"
    assert names == {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    content = packed.read_bytes()
    assert chart.archive(distributions[0], tmp_path).read_bytes() == content


def test_source_distribution_has_files_for_operators_and_packagers(
    distributions: tuple[Path, Path],
) -> None:
    with tarfile.open(distributions[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "etc/dataapi.ini",
        "Makefile",
        "README.md",
        "tests/unit/test_packaging.py",
        ".ci/run",
        ".github/workflows/release.yml",
    } <= names
    assert {
        "LICENSE",
        "SECURITY.md",
        "requirements.lock",
        "packaging/deb.py",
        "packaging/debian/rules",
    } <= names


def test_installed_wheel_provides_its_commands(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    """The commands must import the wheel's modules, not those of the source tree."""
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
