"""The backslash commands, as psql has them."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from server.cli.client import Column, Row, slots_missing
from server.cli.errors import ShellError
from server.cli.output import Format, TableWriter
from server.cli.shell import Shell

HELP = r"""Statements end with ; and may span lines. Ctrl-C ends a running query, Ctrl-D leaves.

  \?                  this help                      \q            leave
  \d [NAME]           tables, or columns of NAME     \dt \dv       tables, views
  \l                  catalogs and databases         \df           functions
  \jobs               jobs, and what they wait for   \conninfo     where the session is
  \i FILE             run a script                   \e [FILE]     edit the last statement, or FILE
  \o [FILE]           results into FILE (or back)    \g [FILE]     run the last statement again (into FILE)
  \watch [SECONDS]    run it again and again         \x            one line per field on/off
  \changes            a result's changes, or table   \timing       times on/off
  \format NAME        table, csv, ndjson or auto
  \set [NAME VALUE]   variables for :NAME            \unset NAME
  \echo TEXT          print TEXT
"""


class QuitError(Exception):
    r"""`\q`."""


def run_command(shell: Shell, line: str) -> None:
    """Runs one backslash command. Raises ShellError, or QuitError for \\q."""
    name, _, rest = line[1:].partition(" ")
    name = name.rstrip(";")
    try:
        arguments = shlex.split(rest.rstrip().removesuffix(";"))
    except ValueError as error:
        raise ShellError(f"\\{name}: {error}") from error
    command = _COMMANDS.get(name)
    if command is None:
        raise ShellError(f"unknown command \\{name}", hint=r"\? lists all commands.")
    command(shell, arguments)


def _help(shell: Shell, arguments: list[str]) -> None:
    print(HELP, file=shell.out, flush=True)


def _quit(shell: Shell, arguments: list[str]) -> None:
    raise QuitError


def _describe(shell: Shell, arguments: list[str]) -> None:
    shell.run_statement(f"DESCRIBE {_identifier(arguments[0])}" if arguments else "SHOW TABLES")


def _statement(text: str) -> Callable[[Shell, list[str]], None]:
    def run(shell: Shell, arguments: list[str]) -> None:
        shell.run_statement(text)

    return run


def _list(shell: Shell, arguments: list[str]) -> None:
    for catalog in shell.first_column("SHOW CATALOGS"):
        for database in shell.first_column(f"SHOW DATABASES FROM {_quoted(catalog)}"):
            mark = "*" if (catalog, database) == shell.location else " "
            print(f"{mark} {catalog}.{database}", file=shell.out, flush=True)


def _conninfo(shell: Shell, arguments: list[str]) -> None:
    info = shell.client.info()
    catalog, database = shell.location
    print(
        f"{info['productName']} {info['version']} at {shell.client.url}, session {shell.client.session}, "
        f"catalog {catalog}, database {database}",
        file=shell.out,
        flush=True,
    )


def _jobs(shell: Shell, arguments: list[str]) -> None:
    """SHOW JOBS and, beside each job, what it waits for or why it last failed."""
    columns = [Column(name, "VARCHAR") for name in ("job id", "name", "status", "restarts", "note")]
    table = TableWriter(shell.out)
    table.start(columns, with_op=False)
    table.rows([Row("INSERT", _job(job)) for job in shell.client.jobs()])
    table.end()


def _job(job: dict[str, Any]) -> list[Any]:
    note = f"waits for {missing} more slots" if (missing := slots_missing(job)) else job.get("failure") or ""
    return [job["jid"], job["name"], job["state"], str(job.get("restarts", 0)), note]


def _include(shell: Shell, arguments: list[str]) -> None:
    if not arguments:
        raise ShellError("\\i needs a file")
    if not shell.run_file(arguments[0]):
        raise ShellError(f"{arguments[0]} stopped at its first error")


def _output(shell: Shell, arguments: list[str]) -> None:
    shell.redirect(arguments[0] if arguments else None)


def _again(shell: Shell, arguments: list[str]) -> None:
    statement = _last(shell)
    if not arguments:
        shell.run_statement(statement)
        return
    shell.redirect(arguments[0])
    try:
        shell.run_statement(statement)
    finally:
        shell.redirect(None)


def _watch(shell: Shell, arguments: list[str]) -> None:
    statement = _last(shell)
    try:
        pause_s = float(arguments[0]) if arguments else 2.0
    except ValueError:
        raise ShellError("\\watch takes a number of seconds") from None
    while True:  # Until Ctrl-C, or an error.
        print(time.strftime("%Y-%m-%d %H:%M:%S"), file=shell.out, flush=True)
        shell.run_statement(statement)
        time.sleep(pause_s)


def _edit(shell: Shell, arguments: list[str]) -> None:
    """Opens an editor; what is saved runs, all of it, as if it had been typed."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    if arguments:
        subprocess.call([*editor, arguments[0]])
        shell.run_file(arguments[0])
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "statement.sql"
        path.write_text(f"{shell.last_statement};\n" if shell.last_statement else "", encoding="utf-8")
        before = path.read_text(encoding="utf-8")
        subprocess.call([*editor, str(path)])
        text = path.read_text(encoding="utf-8")
    if text != before:
        print(text.rstrip(), file=shell.out, flush=True)
        shell.run_text(text)


def _expanded(shell: Shell, arguments: list[str]) -> None:
    shell.options.expanded = not shell.options.expanded
    print(f"expanded display is {'on' if shell.options.expanded else 'off'}", file=shell.out, flush=True)


def _changes(shell: Shell, arguments: list[str]) -> None:
    shell.options.changes = not shell.options.changes
    what = "changes are shown as they come" if shell.options.changes else "changes are folded to a table"
    print(f"on a terminal {what}", file=shell.out, flush=True)


def _timing(shell: Shell, arguments: list[str]) -> None:
    shell.options.timing = not shell.options.timing
    print(f"timing is {'on' if shell.options.timing else 'off'}", file=shell.out, flush=True)


def _format(shell: Shell, arguments: list[str]) -> None:
    known = [f.value for f in Format]
    if len(arguments) != 1 or arguments[0] not in ("auto", *known):
        raise ShellError(f"\\format takes one of: auto, {', '.join(known)}")
    shell.options.format = None if arguments[0] == "auto" else Format(arguments[0])


def _set(shell: Shell, arguments: list[str]) -> None:
    if not arguments:
        for name, value in sorted(shell.options.variables.items()):
            print(f"{name} = '{value}'", file=shell.out, flush=True)
    else:
        shell.options.variables[arguments[0]] = " ".join(arguments[1:])


def _unset(shell: Shell, arguments: list[str]) -> None:
    for name in arguments:
        shell.options.variables.pop(name, None)


def _echo(shell: Shell, arguments: list[str]) -> None:
    print(" ".join(arguments), file=shell.out, flush=True)


def _last(shell: Shell) -> str:
    if not shell.last_statement:
        raise ShellError("there is no statement to run again")
    return shell.last_statement


def _identifier(name: str) -> str:
    """A possibly dotted name, each part quoted unless it is already."""
    return name if "`" in name else ".".join(_quoted(part) for part in name.split("."))


def _quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`"


_COMMANDS: dict[str, Callable[[Shell, list[str]], None]] = {
    "?": _help,
    "h": _help,
    "q": _quit,
    "d": _describe,
    "dt": _statement("SHOW TABLES"),
    "dv": _statement("SHOW VIEWS"),
    "df": _statement("SHOW FUNCTIONS"),
    "l": _list,
    "jobs": _jobs,
    "conninfo": _conninfo,
    "i": _include,
    "o": _output,
    "g": _again,
    "watch": _watch,
    "e": _edit,
    "x": _expanded,
    "changes": _changes,
    "timing": _timing,
    "format": _format,
    "set": _set,
    "unset": _unset,
    "echo": _echo,
}
