"""Writes the manual pages, and completions for bash, zsh, fish and tcsh, from the command line parsers.

    python packaging/manual.py FOLDER

``FOLDER/man`` contains dataapi.1, a page for each command such as dataapi-token.1, and dataapi.ini.5.
``FOLDER/completion`` contains dataapi.bash, _dataapi, dataapi.fish and dataapi.tcsh. The pages have the date
of the commit, so that the files are reproducible.
"""

from __future__ import annotations

import argparse
import re
import runpy
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

sys.path.insert(0, str(Path(__file__).parent))

from dataapi.cli.examples import EXAMPLES, parsers
from dataapi.cli.main import command_line_parser
from dataapi.cli.status import STATUSES
from dataapi.tap import EXAMPLES as DAEMON_EXAMPLES
from dataapi.tap import Options
from dataapi.telemetry.version import installed_version
from distributions import ROOT, commit_time

PROGRAM = "dataapi"
Sections = Mapping[str, Iterable[str]]


def write(folder: Path) -> list[Path]:
    """Write the manual pages and shell completions to a folder. Return their paths."""
    commands = dict(parsers(PROGRAM, command_line_parser()))
    for parser in commands.values():
        # Examples get a section of their own, and troff wraps lines, so argparse must do neither.
        parser.epilog, parser.formatter_class = None, partial(argparse.HelpFormatter, width=10**4)
    texts = {"man/dataapi.ini.5": configuration_page()}
    for words, parser in commands.items():
        if words.count(" ") < 2:
            texts[f"man/{words.replace(' ', '-')}.1"] = command_page(words, parser)
    texts |= {f"completion/{name}": text for name, text in completions(commands).items()}
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return [folder / name for name in texts]


# ---------------------------------------------------------------- manual pages

_SIGNS = str.maketrans({"'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", "…": "..."})


def roff(text: str) -> str:
    """Escape a text for troff, as one line. Paths may be broken after a slash."""
    plain = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"(?<=\w)/(?=\w)", r"/\\:", plain)


def _bold(text: str) -> str:
    return rf"\fB{roff(text)}\fR"


def _list(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a definition list. Terms contain markup, texts do not."""
    for term, text in rows:
        yield f".TP\n{term}\n{roff(text)}"


def _as_typed(lines: Iterable[str]) -> Iterator[str]:
    """Yield preformatted lines."""
    yield from (".PP", ".RS 4", ".EX", *map(roff, lines), ".EE", ".RE")


def _page(parser: argparse.ArgumentParser, section: int, about: str, sections: Sections) -> str:
    """Return the manual page of a parser, with additional sections at the end."""
    page = Manpage(parser)
    if usage := page.synopsis[parser.prog.count(" ") + 1 :]:
        page.add_section("SYNOPSIS", "=", f"{_bold(parser.prog)} {roff(' '.join(usage))}")
    page.prog = parser.prog.replace(" ", "-")
    page.section, page.description, page.manual = section, about, PROGRAM
    page.source = f"{PROGRAM} {installed_version()}"
    page.date = f"{datetime.fromtimestamp(commit_time(), UTC):%Y-%m-%d}"
    for heading, lines in sections.items():
        page.add_section(heading, "=", "\n".join(lines))
    text = str(page).replace("\nPOSITIONAL ARGUMENTS", " COMMANDS").translate(_SIGNS)
    # Escape lines of text that begin with a dot. Otherwise troff would read them as requests.
    text = re.sub(r"^(?=\.[^A-Z])", r"\\&", text, flags=re.MULTILINE)
    # Disable hyphenation and justification, because most words are names.
    return text.replace("\n", "\n.nh\n.ad l\n", 1)


def command_page(words: str, parser: argparse.ArgumentParser) -> str:
    """Return the page of a command and its subcommands. dataapi(1) contains all commands and the daemon."""
    examples = (lines for command, lines in EXAMPLES.items() if f"{command} ".startswith(f"{words} "))
    sections = {
        **(_daemon_sections() if words == PROGRAM else {}),
        "EXAMPLES": _as_typed(dict.fromkeys(line for lines in examples for line in lines)),
        "SEE ALSO": [r"\fBdataapi\fR(1), \fBdataapi.ini\fR(5), \fBtwistd\fR(1), \fBpsql\fR(1)"],
    }
    about = "GraphQL and REST APIs and signed webhooks for PostgreSQL"
    return _page(parser, 1, about if words == PROGRAM else (parser.description or "").rstrip("."), sections)


def _daemon_sections() -> dict[str, Iterable[str]]:
    """Return the sections of dataapi(1) that other pages do not have."""
    options = [(_bold(f"--{name}"), str(text)) for name, _, text in Options.optFlags]
    options += [
        (rf"{_bold(f'--{name}=')}\fIVALUE\fR", str(text)) for name, _, _, text in Options.optParameters
    ]
    options.append((rf"{_bold('--listen=')}\fIENDPOINT\fR", str(Options.opt_listen.__doc__)))
    options.append((_bold("--version"), str(Options.opt_version.__doc__)))
    usage = rf"{_bold('twistd --nodaemon --pidfile= dataapi')} [\fIoption\fR ...]"
    variables = [
        (_bold("DATAAPI_SECTION_KEY"), "Sets a configuration key, and overrides the file."),
        (_bold("PORT"), "Port to listen on, unless the configuration names an endpoint."),
        (_bold("NO_COLOR"), "Disables colors on a terminal, as TERM=dumb does."),
    ]
    files = [
        (_bold("./dataapi.ini"), "The configuration, as created by dataapi init."),
        (_bold("/etc/dataapi/dataapi.ini"), "The configuration if the current folder has no dataapi.ini."),
    ]
    return {
        "DAEMON": [
            usage,
            ".PP",
            roff(str(Options.longdesc)),
            *_list(sorted(options)),
            *_as_typed(DAEMON_EXAMPLES),
        ],
        "EXIT STATUS": _list((_bold(str(status)), text) for status, text in STATUSES.items()),
        "ENVIRONMENT": _list(variables),
        "FILES": _list(files),
    }


def configuration_page() -> str:
    """Return dataapi.ini(5), with all keys as in etc/dataapi.ini."""
    described = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    _, *paragraphs = described["TEMPLATE"].replace("; ", "").split("\n;\n")
    keys: list[str] = []
    for section, (about, entries) in described["sections"]().items():
        keys += [f'.SS "[{section}]"', *([roff(about)] if section != PROGRAM else [])]
        for entry in entries:
            kind = "for example " if entry.is_example else "default "
            terms = [
                f"{_bold(name)} ({kind}{roff(value)})" if value else _bold(name) for name, value in entry.keys
            ]
            keys += [".TP", "\n.TQ\n".join(terms), roff(entry.comment)]
    sections = {
        "DESCRIPTION": "\n.PP\n".join(map(roff, paragraphs)).splitlines(),
        "KEYS": keys,
        "SEE ALSO": [r"\fBdataapi\fR(1)"],
    }
    empty_parser = argparse.ArgumentParser(prog="dataapi.ini", usage="", add_help=False)
    return _page(empty_parser, 5, "configuration of dataapi", sections)


# ---------------------------------------------------------------- completion

BASH = r"""
# Readline also splits words at "=" and ":".
_dataapi() {
    local line=${COMP_LINE:0:COMP_POINT} word
    local -a typed COMP_WORDS=()
    read -ra typed <<<"$line"
    [[ $line == *[[:space:]] ]] && typed+=("")
    for word in "${typed[@]}"; do
        [[ $word == --*=* ]] && COMP_WORDS+=("${word%%=*}") word=${word#*=}
        COMP_WORDS+=("$word")
    done
    local COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _shtab_dataapi
    if [[ -z $word$COMPREPLY && ${COMP_WORDS[COMP_CWORD - 1]} != -* ]]; then
        COMP_WORDS[COMP_CWORD]=-
        _shtab_dataapi
    fi
    [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%:*}:"}")
}
complete -F _dataapi dataapi
"""


def completions(commands: Mapping[str, argparse.ArgumentParser]) -> dict[str, str]:
    """Return the completion files by name."""
    for parser in commands.values():
        for action in parser._actions:
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    texts = {
        shell: shtab.complete(commands[PROGRAM], shell) + "\n" for shell in ("bash", "zsh", "fish", "tcsh")
    }
    # Accept --option=value, and escape colons in values, because they separate the parts of a specification.
    zsh = re.sub(r"(--[a-z-]+)\[(?=.*\]:)", r"\1=[", texts["zsh"])
    zsh = re.sub(
        r"(?<=:\()[^)]+(?=\)\"$)", lambda values: values[0].replace(":", r"\:"), zsh, flags=re.MULTILINE
    )
    return {
        "dataapi.bash": texts["bash"] + BASH,
        "_dataapi": zsh,
        "dataapi.fish": texts["fish"],
        # shtab writes these options in a set's arbitrary order.
        "dataapi.tcsh": texts["tcsh"].replace("'c/-/(h -)/'", "'c/-/(- h)/'"),
    }


if __name__ == "__main__":
    for path in write(Path(sys.argv[1])):
        print(path)  # noqa: T201 - the user reads it
