"""Writes the manual pages, and completion for bash, zsh and fish, from what reads the command line.

    python packaging/manual.py FOLDER

They are dataapi.1 and dataapi.ini.5 in ``FOLDER/man``, and dataapi.bash, _dataapi and dataapi.fish in
``FOLDER/completion``.  The date is the commit's, so that they are the same wherever they are written.
"""

from __future__ import annotations

import argparse
import re
import runpy
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from dataapi.cli.examples import EXAMPLES, is_group, parsers, spelling
from dataapi.cli.main import command_line_parser
from dataapi.cli.status import STATUSES
from dataapi.tap import EXAMPLES as DAEMON_EXAMPLES
from dataapi.tap import Options
from dataapi.telemetry.version import installed_version
from distributions import ROOT, commit_time

PROGRAM = "dataapi"
Parsers = Sequence[tuple[str, argparse.ArgumentParser]]


def write(folder: Path) -> list[Path]:
    """Write all of them below a folder; return their paths."""
    found = list(parsers(PROGRAM, command_line_parser()))
    commands = [_command(words, parser) for words, parser in found]
    date = f"{datetime.fromtimestamp(commit_time(), UTC):%Y-%m-%d}"
    texts = {
        "man/dataapi.1": command_page(found, date),
        "man/dataapi.ini.5": configuration_page(date),
        "completion/dataapi.bash": bash(commands),
        "completion/_dataapi": zsh(commands),
        "completion/dataapi.fish": fish(commands),
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return [folder / name for name in texts]


# ---------------------------------------------------------------- manual pages

_SPECIAL = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", "…": "..."}
)


def roff(text: str) -> str:
    """Return a text in which troff sees no mark-up, on one line; paths may break after a slash."""
    return re.sub(r"(?<=\w)/(?=\w)", r"/\\:", " ".join(text.split()).translate(_SPECIAL))


def _line(text: str) -> str:
    """Return a line of text, which does not begin a request."""
    return rf"\&{roff(text)}" if text.lstrip().startswith((".", "'")) else roff(text)


def _bold(text: str) -> str:
    return rf"\fB{roff(text)}\fR"


def _spelled(action: argparse.Action) -> str:
    """Return an argument with its name in bold and its value in italics."""
    name, _, value = spelling(action).partition(" ")
    if not action.option_strings:
        return rf"\fI{roff(name)}\fR"
    return " ".join([_bold(name), *([rf"\fI{roff(value)}\fR"] if value else [])])


def _usage(words: str, parser: argparse.ArgumentParser) -> str:
    """Return a command with its arguments, brackets around those that may be left out."""
    shown: list[str] = []
    done: set[argparse.Action] = set()
    for action in sorted(parser._actions, key=lambda each: not each.option_strings):
        if action in done or action.dest == "help":
            continue
        group = [one for one in parser._mutually_exclusive_groups if action in one._group_actions]
        together = group[0]._group_actions if group else [action]
        done.update(together)
        text = " | ".join(map(_spelled, together))
        optional = not action.required if action.option_strings else action.nargs == "?"
        shown.append(f"[{text}]" if optional or len(together) > 1 else text)
    return " ".join([_bold(words), *shown])


def _list(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield a list of terms that are marked up, with a text about each."""
    for term, text in rows:
        yield f".TP\n{term}\n{_line(text)}"


def _as_typed(lines: Sequence[str]) -> str:
    """Return lines that are not filled."""
    text = "\n".join(map(_line, lines))
    return f".PP\n.RS 4\n.nf\n{text}\n.fi\n.RE"


def _page(name: str, section: int, date: str, parts: Iterator[str]) -> str:
    title = f'.TH {name.upper()} {section} "{date}" "dataapi {installed_version()}" "dataapi"'
    # Nothing is hyphenated or stretched: most words are names.
    return "\n".join([title, ".nh", ".ad l", *parts]) + "\n"


def command_page(found: Parsers, date: str) -> str:
    """Return dataapi(1): the daemon and every command."""
    return _page(PROGRAM, 1, date, _command_page(found))


def _command_page(found: Parsers) -> Iterator[str]:
    whole = found[0][1]
    yield ".SH NAME"
    yield f"dataapi \\- {roff('GraphQL and REST APIs and signed webhooks for PostgreSQL')}"
    yield ".SH SYNOPSIS"
    yield rf"{_bold('dataapi')} \fICOMMAND\fR [\fIargument\fR ...]"
    yield ".br"
    yield rf"{_bold('twistd --nodaemon --pidfile= dataapi')} [\fIoption\fR ...]"
    yield ".SH DESCRIPTION"
    yield _line(
        "The daemon serves a PostgreSQL database as a GraphQL API and a REST API, and delivers signed "
        "webhooks. twistd runs it; the command dataapi sets it up, checks it and operates it."
    )
    yield ".PP"
    yield _line(whole.description or "")
    yield ".SH OPTIONS"
    yield from _list(
        [(_spelled(action), action.help or "") for action in whole._actions if action.nargs == 0]
    )
    yield ".SH COMMANDS"
    for words, parser in found[1:]:
        if is_group(parser):
            continue
        yield f'.SS "{roff(words)}"'
        yield _usage(words, parser)
        yield ".PP"
        yield _line(parser.description or "")
        actions = [action for action in parser._actions if action.dest != "help"]
        yield from _list([(_spelled(action), (action.help or "") % vars(action)) for action in actions])
        yield _as_typed(EXAMPLES[words])
    yield ".SH DAEMON"
    yield _line(str(Options.longdesc))
    options = [(_bold(f"--{name}"), str(text)) for name, _, text in Options.optFlags]
    options += [
        (rf"{_bold(f'--{name}=')}\fIVALUE\fR", str(text)) for name, _, _, text in Options.optParameters
    ]
    options.append((rf"{_bold('--listen=')}\fIENDPOINT\fR", str(Options.opt_listen.__doc__)))
    options.append((_bold("--version"), str(Options.opt_version.__doc__)))
    yield from _list(sorted(options))
    yield _as_typed(DAEMON_EXAMPLES)
    yield ".SH EXIT STATUS"
    yield from _list([(_bold(str(status)), text) for status, text in STATUSES.items()])
    yield ".SH ENVIRONMENT"
    yield from _list(
        [
            (_bold("DATAAPI_SECTION_KEY"), "Sets a key of the configuration, and wins over its file."),
            (_bold("PORT"), "The port to listen on, where nothing else says where to."),
            (_bold("NO_COLOR"), "Turns off the colours of lists on a terminal, as TERM=dumb does."),
        ]
    )
    yield ".SH FILES"
    yield from _list(
        [
            (_bold("./dataapi.ini"), "The configuration, which dataapi init writes."),
            (_bold("/etc/dataapi/dataapi.ini"), "The configuration, if there is none in the current folder."),
        ]
    )
    yield ".SH EXAMPLES"
    yield _as_typed(EXAMPLES[PROGRAM])
    yield ".SH SEE ALSO"
    yield r"\fBdataapi.ini\fR(5), \fBtwistd\fR(1), \fBpsql\fR(1)"


def configuration_page(date: str) -> str:
    """Return dataapi.ini(5): every key, as etc/dataapi.ini describes it."""
    return _page("dataapi.ini", 5, date, _configuration_page())


def _configuration_page() -> Iterator[str]:
    yield ".SH NAME"
    yield r"dataapi.ini \- configuration of dataapi"
    yield ".SH DESCRIPTION"
    yield _line(
        "twistd dataapi and dataapi read ./dataapi.ini, else /etc/dataapi/dataapi.ini, or the file that "
        "--config names. It has a section [dataapi] for the service, [project] or several [project:REF] for "
        "databases, and [webhooks]. dataapi check-config lists every mistake in it."
    )
    yield ".PP"
    yield _line(
        "A line is key = value, and ; begins a comment. Further lines of a value are indented. Lists are "
        "separated by commas or line ends, switches are yes or no. A value @/path is read from that file, "
        "without its last line end."
    )
    yield ".PP"
    yield _line(
        "The environment wins over the file: DATAAPI_, the section and the key, in capitals and with _ for "
        "other signs, such as DATAAPI_PROJECT_DB_URI."
    )
    sections = runpy.run_path(str(ROOT / "docs" / "generate.py"))["sections"]()
    for section, (_, described) in sections.items():
        yield f'.SH "[{section}]"'
        for entry in described:
            for number, (name, value) in enumerate(entry.keys):
                yield ".TP" if number == 0 else ".TQ"
                kind = "for example " if entry.is_example else "default "
                yield f"{_bold(name)} ({kind}{roff(value)})" if value else _bold(name)
            yield _line(entry.comment)
    yield ".SH SEE ALSO"
    yield r"\fBdataapi\fR(1)"


# ---------------------------------------------------------------- completion


@dataclass(frozen=True, slots=True)
class Argument:
    """What completion offers for an argument.

    :ivar flags: how the option is written; empty for what stands by its place alone.
    :ivar value: what it takes, "" for nothing.
    """

    flags: tuple[str, ...]
    about: str
    value: str
    choices: tuple[str, ...]
    is_file: bool
    repeats: bool


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a group of them.

    :ivar path: its words, without the program's name.
    :ivar below: the commands of a group, each with its summary.
    """

    path: tuple[str, ...]
    arguments: tuple[Argument, ...]
    below: tuple[tuple[str, str], ...]

    @property
    def options(self) -> list[Argument]:
        return [one for one in self.arguments if one.flags]

    @property
    def takes_file(self) -> bool:
        return any(one.is_file for one in self.arguments if not one.flags)


def _command(words: str, parser: argparse.ArgumentParser) -> Command:
    arguments: list[Argument] = []
    below: list[tuple[str, str]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below += [(each.dest, each.help or "") for each in action._choices_actions]
            continue
        about = (action.help or "") % vars(action)
        value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
        choices = tuple(map(str, action.choices or ()))
        flags = tuple(action.option_strings)
        repeats = isinstance(action, argparse._AppendAction)
        arguments.append(Argument(flags, about, value, choices, action.type is Path, repeats))
    return Command(tuple(words.split()[1:]), tuple(arguments), tuple(below))


BASH = r"""# Completion of dataapi for bash: packaging/manual.py writes it.
_dataapi() {
    local line=${COMP_LINE:0:COMP_POINT} path= word cur prev values
    local -a words
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    for word in "${words[@]:1:${#words[@]}-2}"; do
        case "$path $word" in
            @PATHS@) path+=" $word" ;;
        esac
    done
    cur=${words[-1]} prev=${words[-2]}
    [[ $cur == --*=* ]] && prev=${cur%%=*} cur=${cur#*=}
    COMPREPLY=()
    case "$path $prev" in
        @FILES@) compopt -o default 2>/dev/null; return ;;
@CHOICES@
        @OTHERS@) return ;;
        *)
            case "$path" in
@WORDS@
            esac
            ;;
    esac
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
    # Readline replaces only what follows the last colon.
    [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"${cur%:*}:"}")
}
complete -F _dataapi dataapi
"""


def bash(commands: Sequence[Command]) -> str:
    """Return completion for bash."""
    files: list[str] = []
    others: list[str] = []
    choices: list[str] = []
    words: list[str] = []
    for command in commands:
        path = "".join(f" {word}" for word in command.path)
        for option in command.options:
            places = [f'"{path} {flag}"' for flag in option.flags]
            if option.choices:
                choices.append(f'        {" | ".join(places)}) values="{" ".join(option.choices)}" ;;')
            elif option.value:
                (files if option.is_file else others).extend(places)
        offered = [name for name, _ in command.below] + [
            flag for option in command.options for flag in option.flags
        ]
        instead = (
            "[[ $cur == -* ]] || { compopt -o default 2>/dev/null; return; }; " if command.takes_file else ""
        )
        words.append(f'                "{path}") {instead}values="{" ".join(offered)}" ;;')
    paths = [f'"{"".join(f" {word}" for word in command.path)}"' for command in commands if command.path]
    return (
        BASH.replace("@PATHS@", " | ".join(paths))
        .replace("@FILES@", " | ".join(files))
        .replace("@CHOICES@", "\n".join(choices))
        .replace("@OTHERS@", " | ".join(others))
        .replace("@WORDS@", "\n".join(words))
    )


def zsh(commands: Sequence[Command]) -> str:
    """Return completion for zsh: a function for each command."""
    return "\n".join(
        ["#compdef dataapi", "# packaging/manual.py writes it.", *map(_zsh, commands), '_dataapi "$@"', ""]
    )


def _zsh(command: Command) -> str:
    name = "_".join(["_dataapi", *command.path])
    specs = []
    for one in command.arguments:
        about = _zsh_text(one.about)
        action = (
            f"({' '.join(map(_zsh_text, one.choices))})" if one.choices else "_files" if one.is_file else " "
        )
        value = f":{_zsh_text(one.value)}:{action}" if one.value else ""
        if not one.flags:
            specs.append(f":{_zsh_text(one.value)}:{action}")
            continue
        excluded = "*" if one.repeats else f"({' '.join(one.flags)})"
        specs += [f"{excluded}{flag}{'=' if value else ''}[{about}]{value}" for flag in one.flags]
    lines = [f"{name}() {{"]
    if command.below:
        offered = " ".join(rf"{below}\:{_zsh_word(summary)}" for below, summary in command.below)
        specs += [f"1:command:(({offered}))", "*::argument:->below"]
        lines += ["    local curcontext=$curcontext state line"]
    quoted = " \\\n        ".join(f"'{spec.replace(chr(39), QUOTE)}'" for spec in specs)
    lines.append(f"    _arguments {'-C ' if command.below else ''}\\\n        {quoted}")
    if command.below:
        lines.append("    [[ $state == below ]] && case $line[1] in")
        lines += [f"        {below}) {name}_{below} ;;" for below, _ in command.below]
        lines.append("    esac")
    return "\n".join([*lines, "}"])


QUOTE = "'\\''"


def _zsh_text(text: str) -> str:
    """Return a text that ends no part of a specification of ``_arguments``."""
    return "".join(f"\\{each}" if each in "\\[]:()" else each for each in text)


def _zsh_word(text: str) -> str:
    """Return a text as one word of a list in such a specification."""
    return "".join(f"\\{each}" if each in "\\[]:() '\"`$;&|<>*?" else each for each in text)


FISH = r"""# Completion of dataapi for fish: packaging/manual.py writes it.
function __dataapi_at --description 'Whether the command so far is the one that is named'
    set --local known @PATHS@
    set --local path
    for word in (commandline --tokenize --current-process --cut-at-cursor)[2..-1]
        set --local longer (string join ' ' -- $path $word)
        contains -- "$longer" $known; and set path $path $word
    end
    test "$path" = "$argv"
end
complete --command dataapi --no-files
"""


def fish(commands: Sequence[Command]) -> str:
    """Return completion for fish."""
    paths = " ".join(f"'{' '.join(command.path)}'" for command in commands if command.path)
    lines = []
    for command in commands:
        condition = " ".join(["__dataapi_at", *command.path])
        start = f"complete --command dataapi --condition '{condition}'"
        for name, summary in command.below:
            lines.append(f"{start} --arguments {name} --description {_fish(summary)}")
        for option in command.options:
            flags = " ".join(
                f"--long-option {flag[2:]}" if flag.startswith("--") else f"--short-option {flag[1:]}"
                for flag in option.flags
            )
            takes = " --exclusive" if option.value and not option.is_file else ""
            takes += " --require-parameter --force-files" if option.is_file else ""
            takes += f" --arguments {_fish(' '.join(option.choices))}" if option.choices else ""
            lines.append(f"{start} {flags}{takes} --description {_fish(option.about)}")
        if command.takes_file:
            lines.append(f"{start} --force-files")
    return FISH.replace("@PATHS@", paths) + "\n".join(lines) + "\n"


def _fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


if __name__ == "__main__":
    for made in write(Path(sys.argv[1])):
        print(made)  # noqa: T201 - the user reads it
