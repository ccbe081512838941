"""Manual pages and shell completion."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dataapi.cli.examples import EXAMPLES, is_group, parsers
from dataapi.cli.main import command_line_parser
from dataapi.service.configuration.keys import SECTIONS
from support import documents
from support.terminal import Terminal

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

PARSERS = dict(parsers("dataapi", command_line_parser()))
LEAVES = {words: parser for words, parser in PARSERS.items() if not is_group(parser)}
PAGES = [words for words in PARSERS if words.count(" ") < 2]
MOMENT = "1700000000"


def build(folder: Path) -> Path:
    """Write all files into a folder with a fixed SOURCE_DATE_EPOCH and return the folder."""
    words = [sys.executable, str(documents.ROOT / "packaging" / "manual.py"), str(folder)]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": MOMENT}
    subprocess.run(words, env=environ, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with manual pages and completion scripts."""
    return build(tmp_path_factory.mktemp("manual"))


def require(program: str) -> str:
    """Return the path of a program, or skip the test if it is not installed."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


def flags(parser: argparse.ArgumentParser) -> set[str]:
    return {flag for action in parser._actions for flag in action.option_strings}


def commands(words: str) -> set[str]:
    depth = words.count(" ") + 1
    return {each.split()[depth] for each in PARSERS if each.startswith(f"{words} ")}


def rendered(page: Path) -> str:
    """Render a page for a terminal and check that groff prints no warnings."""
    words = [require("groff"), "-man", "-ww", "-Tascii", "-P-cbou", str(page)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return " ".join(done.stdout.split())


def test_build_is_reproducible(manual: Path, tmp_path: Path) -> None:
    again = build(tmp_path)
    for path in (path for path in manual.rglob("*") if path.is_file()):
        assert path.read_bytes() == (again / path.relative_to(manual)).read_bytes()
    assert r'"2023\-11\-14"' in (manual / "man" / "dataapi.1").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_page_contains_its_commands_and_options(manual: Path, page: str) -> None:
    text = rendered(manual / "man" / f"{page.replace(' ', '-')}.1")
    assert f" SYNOPSIS {page} [-h] " in text
    for words, parser in LEAVES.items():
        if not f"{words} ".startswith(f"{page} "):
            continue
        about = text if words == page else text.partition(f" COMMAND '{words}' usage: {words} [-h] ")[2]
        assert parser.description
        assert f" {parser.description} " in about, words
        for action in parser._actions:
            if action.dest != "help":
                assert (action.help or "") % vars(action) in about, (words, action.dest)
        assert all(" ".join(example.split()) in about for example in EXAMPLES[words]), words


def test_dataapi_page_contains_daemon_options_and_exit_statuses(manual: Path) -> None:
    text = rendered(manual / "man" / "dataapi.1")
    for option in ("--embedded=VALUE", "--listen=ENDPOINT", "--workers=VALUE", "--demo"):
        assert option in text
    assert "78 The configuration is invalid" in text
    assert "twistd --nodaemon --pidfile= dataapi --embedded ./data" in text


def test_examples_of_a_page_can_be_pasted_into_a_shell(manual: Path) -> None:
    """The page must keep ASCII quotes and hyphens on a UTF-8 terminal."""
    words = [require("groff"), "-man", "-Tutf8", "-P-cbou", str(manual / "man" / "dataapi-event.1")]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "dataapi event publish v1.shop.order --organization acme --payload '{\"total\": 12}'" in shown


def test_configuration_page_contains_every_key(manual: Path) -> None:
    text = rendered(manual / "man" / "dataapi.ini.5")
    for section, keys in SECTIONS.items():
        part = text.partition(f" [{section}]")[2]
        for key in keys:
            assert f" {key} " in part, key


def test_man_shows_pages_without_warnings(manual: Path) -> None:
    man = require("man")
    for page in sorted((manual / "man").iterdir()):
        environ = {**os.environ, "MANWIDTH": "80", "MANROFFOPT": "-ww", "LC_ALL": "C.UTF-8"}
        words = [man, "--warnings", "--local-file", str(page)]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
        if "minimized" in done.stdout or "minimized" in done.stderr:
            pytest.skip("manual pages of this system are not installed")
        assert (done.returncode, done.stderr) == (0, "")
        assert "dataapi" in done.stdout


def completed(script: Path, line: str) -> set[str]:
    """Return bash's completions of a command line."""
    program = f'. {script}; COMP_LINE=$1 COMP_POINT=${{#1}}; _dataapi; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        [require("bash"), "--norc", "-c", program, "bash", line], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize("words", PARSERS)
def test_bash_completes_commands_and_options(manual: Path, words: str) -> None:
    """Bash offers options after a hyphen, or if the command has no subcommands."""
    script = manual / "completion" / "dataapi.bash"
    assert completed(script, f"{words} -") == flags(PARSERS[words])
    if words != "dataapi migrate-config":
        assert completed(script, f"{words} ") == (commands(words) or flags(PARSERS[words]))


def test_bash_completes_option_values(manual: Path) -> None:
    """Bash splits words at ``=`` and ``:``."""
    script = manual / "completion" / "dataapi.bash"
    create = "dataapi token create --operator"
    values = {"webhooks:read", "webhooks:write", "events:publish"}
    assert completed(script, f"{create} --permission ") == values
    assert completed(script, f"{create} --permission=events") == {"events:publish"}
    assert completed(script, f"{create} --permission webhooks:r") == {"read"}
    assert completed(script, f"{create} --expires ") == set()


@pytest.fixture
def typing(manual: Path, tmp_path: Path) -> Iterator[Terminal]:
    """Return an interactive bash in which Ctrl-G prints and clears the command line."""
    (tmp_path / "postgrest.conf").touch()
    (tmp_path / "my file.ini").touch()
    setup = tmp_path / "setup"
    show = "show() { printf '<%s>' \"$READLINE_LINE\"; READLINE_LINE=; }; bind -x '\"\\C-g\": show'"
    setup.write_text(f". {manual / 'completion' / 'dataapi.bash'}\n{show}\nPS1='ready\\$ '\n")
    words = [require("bash"), "--noprofile", "--rcfile", str(setup), "-i"]
    environ = {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(tmp_path)}
    with Terminal(words, cwd=tmp_path, environ=environ) as terminal:
        terminal.read_to("ready# " if os.geteuid() == 0 else "ready$ ")
        yield terminal


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("dataapi che\t", "dataapi check-config "),
        ("dataapi webhooks ty\tad\t", "dataapi webhooks types add "),
        ("dataapi schema --ro\tanon --form\t", "dataapi schema --role anon --format "),
        ("dataapi schema --format o\t", "dataapi schema --format openapi "),
        (
            "dataapi token create --permission webhooks:w\t",
            "dataapi token create --permission webhooks:write ",
        ),
        ("dataapi check-config --config my\t", r"dataapi check-config --config my\ file.ini "),
        ("dataapi check-config --config=my\t", r"dataapi check-config --config=my\ file.ini "),
        ("dataapi migrate-config post\t", "dataapi migrate-config postgrest.conf "),
        ("dataapi token revoke post\t", "dataapi token revoke post"),
    ],
)
def test_tab_completes_in_bash(typing: Terminal, typed: str, line: str) -> None:
    typing.type(f"{typed}\x07")
    typing.read_to("<")
    assert typing.read_to(">") == line


def test_fish_completes_commands_options_and_values(manual: Path) -> None:
    fish = require("fish")
    script = manual / "completion" / "dataapi.fish"
    subprocess.run([fish, "--no-execute", str(script)], check=True)
    lines = [f"{words} -" for words in PARSERS] + [f"{words} " for words in PARSERS]
    lines += ["dataapi token create --permission ", "dataapi migrate-config dataapi.f"]
    script_lines = "\n".join(f"complete --do-complete '{line}'; echo ----" for line in lines)
    done = subprocess.run(
        [fish, "--no-config", "-c", f"source {script.name}\n{script_lines}"],
        cwd=script.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    completions = [
        {line.partition("\t")[0] for line in part.splitlines() if line}
        for part in done.stdout.split("----\n")
    ]
    offered = dict(zip(lines, completions, strict=False))
    for words, parser in PARSERS.items():
        assert flags(parser) - {"-h"} <= offered[f"{words} -"], words
        if words not in LEAVES:
            assert offered[f"{words} "] == commands(words)
    assert offered["dataapi token create --permission "] == {
        "webhooks:read",
        "webhooks:write",
        "events:publish",
    }
    assert offered["dataapi migrate-config dataapi.f"] == {"dataapi.fish"}


def test_zsh_completion_is_valid_and_has_every_option(manual: Path) -> None:
    script = manual / "completion" / "_dataapi"
    text = script.read_text("utf-8")
    for words, parser in PARSERS.items():
        name = re.sub(r"\W", "_", f"_shtab_{words}")
        [options] = re.findall(rf"^{name}_options=\($(.*?)^\)$", text, re.MULTILINE | re.DOTALL)
        assert all(re.search(rf'{flag}[=\[,"}}]', options) for flag in flags(parser)), words
    subprocess.run([require("zsh"), "-n", str(script)], check=True)


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("dataapi check\t", "dataapi check-config "),
        ("dataapi webhooks ty\tad\t", "dataapi webhooks types add "),
        ("dataapi schema --format=o\t", "dataapi schema --format=openapi "),
        ("dataapi token create --permission=events\t", "dataapi token create --permission=events:publish "),
        ("dataapi migrate-config post\t", "dataapi migrate-config postgrest.conf "),
    ],
)
def test_tab_completes_in_zsh(manual: Path, tmp_path: Path, typed: str, line: str) -> None:
    (tmp_path / "postgrest.conf").touch()
    (tmp_path / ".zshrc").write_text(
        f"fpath=({manual / 'completion'} $fpath)\n"
        f"autoload -U compinit && compinit -u -d {tmp_path / 'dump'}\n"
        "show() { print -n \"<$BUFFER>\"; BUFFER= }; zle -N show; bindkey '^G' show\nunsetopt promptsp\n"
        "PS1='ready%# '\n"
    )
    environ = {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path)}
    with Terminal([require("zsh"), "-i"], cwd=tmp_path, environ=environ) as terminal:
        terminal.read_to("ready# " if os.geteuid() == 0 else "ready% ")
        terminal.type(f"{typed}\x07")
        terminal.read_to("<")
        assert terminal.read_to(">") == line


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("dataapi check\t", "dataapi check-config "),
        ("dataapi webhooks ty\tad\t", "dataapi webhooks types add "),
        ("dataapi schema --format o\t", "dataapi schema --format openapi "),
        ("dataapi check-config --config post\t", "dataapi check-config --config postgrest.conf "),
        ("dataapi migrate-config post\t", "dataapi migrate-config postgrest.conf "),
    ],
)
def test_tab_completes_in_tcsh(manual: Path, tmp_path: Path, typed: str, line: str) -> None:
    (tmp_path / "postgrest.conf").touch()
    program = tmp_path / "dataapi"
    program.write_text('#!/bin/sh\necho "<dataapi $*>"\n')
    program.chmod(0o755)
    script = manual / "completion" / "dataapi.tcsh"
    (tmp_path / ".tcshrc").write_text(
        f"set path = ({tmp_path} $path)\nset prompt = 'ready> '\nsource {script}\n"
    )
    environ = {"PATH": os.environ["PATH"], "TERM": "vt100", "HOME": str(tmp_path)}
    # tcsh supports line editing only on its controlling terminal.
    words = ["setsid", "--ctty", require("tcsh"), "-i"]
    with Terminal(words, cwd=tmp_path, environ=environ) as terminal:
        terminal.read_to("ready> ")
        terminal.type(f"{typed}\n")
        terminal.read_to("<")
        assert terminal.read_to(">") == line.strip()
