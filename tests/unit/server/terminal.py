"""A program on a pseudo-terminal, as a person would use it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import time
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

DEADLINE_S = 40.0

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>]|\x1b\][^\x07]*\x07|[\r\x07\x08]")


class Terminal:
    """Starts the shell; `expect` waits for text on the screen, `type` sends keys."""

    def __init__(self, url: str, home: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        master, slave = pty.openpty()
        ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        variables = dict(os.environ, HOME=str(home), TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1") | (environment or {})
        variables.pop("XDG_STATE_HOME", None)
        self._master = master
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "server", "sql", "--url", url, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=variables,
            start_new_session=True,
            # As a background job of a script would: Ctrl-C must work at a terminal all the same.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        os.close(slave)
        self.text = ""
        self._seen = 0

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def interrupt(self) -> None:
        """What Ctrl-C does to a program that does not read keys itself."""
        self._process.send_signal(signal.SIGINT)

    def expect(self, text: str) -> str:
        """Waits until `text` appears behind what was expected before; returns what came up to its end."""
        deadline_s = time.monotonic() + DEADLINE_S
        while text not in self.text[self._seen :]:
            assert time.monotonic() < deadline_s, f"no {text!r} in:\n{self.text[self._seen :]}"
            self._read(0.1)
        end = self.text.index(text, self._seen) + len(text)
        found, self._seen = self.text[self._seen : end], end
        return found

    def wait(self) -> int:
        """The exit code."""
        deadline_s = time.monotonic() + DEADLINE_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline_s, f"does not end:\n{self.text[self._seen :]}"
            self._read(0.1)
        self._read(0)
        return self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)

    def _read(self, wait_s: float) -> None:
        if not select.select([self._master], [], [], wait_s)[0]:
            return
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return  # The program has ended.
        self.text += _ESCAPES.sub("", data.decode(errors="replace"))
