"""Flags of `headrace sql`, and what they make it do."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from server.cli.client import GatewayClient
from server.cli.errors import ConnectionLostError, ShellError
from server.cli.meta import QuitError, run_command
from server.cli.output import Format
from server.cli.shell import SHARED_CATALOG, OutputClosedError, Shell, ShellOptions

DEFAULT_URL = "http://127.0.0.1:8083"

EXIT_OK = 0
EXIT_USAGE = 1
EXIT_CONNECTION = 2
EXIT_SCRIPT = 3
EXIT_INTERRUPTED = 130

_EPILOG = """\
examples:
  headrace sql                                     interactive shell
  headrace sql -c "SELECT * FROM bids LIMIT 10"    one statement; rows as a table on a terminal, ndjson in a pipe
  headrace sql -f pipeline.sql -v topic=orders     a script; :'topic' in it becomes 'orders'
  headrace sql -c "SELECT * FROM t" --format csv --duration 10 > t.csv

exit codes: 0 all went well; 1 wrong usage; 2 the server cannot be reached or went away; 3 a statement failed
(the rest of the script is not run, unless --keep-going); 130 ended by Ctrl-C.
"""


class _Parser(argparse.ArgumentParser):
    """Wrong usage ends with 1: 2 means that the server cannot be reached."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def _parser() -> _Parser:
    parser = _Parser(
        prog="headrace sql",
        description="SQL shell for a Headrace server (or any Flink SQL gateway).",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--url", default=os.environ.get("HEADRACE_URL", DEFAULT_URL), help="the server (HEADRACE_URL; %(default)s)")
    add("-c", "--command", dest="texts", action=_Text, const="command", help="run SQL and leave; may be repeated")
    add("-f", "--file", dest="texts", action=_Text, const="file", help="run a script and leave; - is standard input")
    add("-v", "--variable", action="append", default=[], metavar="NAME=VALUE", help="for :NAME, :'NAME', :\"NAME\"")
    add("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the session")
    add(
        "--catalog",
        default=SHARED_CATALOG,
        help="catalog to start in; default_catalog is the session's own (%(default)s)",
    )
    add("--format", choices=[f.value for f in Format], help="default: table on a terminal, ndjson elsewhere")
    add("--csv", dest="format", action="store_const", const=Format.CSV.value, help="the same as --format csv")
    add("--limit", type=_positive, metavar="ROWS", help="end a SELECT after so many rows")
    add("--duration", type=_seconds, metavar="SECONDS", help="end a SELECT after so long")
    add("--keep-going", action="store_true", help="run the rest of a script after an error")
    add("-x", "--expanded", action="store_true", help="one line per field")
    add("--changes", action="store_true", help="on a terminal, show the changes of a result that updates its rows")
    add("--timing", action="store_true", help="show how long statements took")
    add("-q", "--quiet", action="store_true", help="do not report statements without rows")
    return parser


class _Text(argparse.Action):
    """Keeps -c and -f in the order they were given."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        texts = list(getattr(namespace, self.dest) or [])
        setattr(namespace, self.dest, [*texts, (self.const, values)])


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError("a whole number from 1 is expected")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        raise argparse.ArgumentTypeError("a number of seconds is expected") from None
    if not value > 0:
        raise argparse.ArgumentTypeError("more than zero seconds are expected")
    return value


def _pairs(texts: Sequence[str], flag: str, parser: _Parser) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            parser.error(f"{flag} takes NAME=VALUE, not '{text}'")
        pairs[name] = value
    return pairs


def main(arguments: Sequence[str]) -> int:
    """Runs the shell; returns its exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    options = ShellOptions(
        format=Format(given.format) if given.format else None,
        expanded=given.expanded,
        changes=given.changes,
        timing=given.timing,
        quiet=given.quiet,
        limit=given.limit,
        duration_s=given.duration,
        catalog=given.catalog,
        properties=_pairs(given.set, "--set", parser),
        variables=_pairs(given.variable, "--variable", parser),
    )
    url = given.url if "://" in given.url else f"http://{given.url}"
    shell = Shell(GatewayClient(url), options, sys.stdout, sys.stderr)
    shell.commands = run_command
    signal.signal(signal.SIGTERM, _leave)
    if sys.stdin.isatty():
        # A script may have started it with interrupts ignored; whoever sits at a terminal means Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        shell.connect()
        try:
            return _run(shell, given.texts, given.keep_going)
        finally:
            shell.client.close()
    except ConnectionLostError as error:
        shell.error(error)
        return EXIT_CONNECTION
    except ShellError as error:
        shell.error(error)
        return EXIT_SCRIPT
    except (BrokenPipeError, OutputClosedError):
        # Whoever read the output has enough: that is no error. What is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM: through every `finally`, so that the query ends too."""
    raise SystemExit(128 + number)


def _run(shell: Shell, texts: list[tuple[str, str]] | None, keep_going: bool) -> int:
    if not texts and sys.stdin.isatty():
        from server.cli import repl

        repl.run(shell)
        return EXIT_OK
    succeeded = True
    for kind, text in texts or [("file", "-")]:
        try:
            if kind == "file":
                done = shell.run_file(text, keep_going=keep_going)
            else:
                done = shell.run_text(text, keep_going=keep_going)
        except QuitError:
            break
        succeeded = succeeded and done
        if not done and not keep_going:
            break
    return EXIT_OK if succeeded else EXIT_SCRIPT
