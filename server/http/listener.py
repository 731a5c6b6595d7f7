"""The listening socket, opened before anything is started that would have to be stopped again."""

from __future__ import annotations

import socket

from server.config import ConfigError


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address. Raises ConfigError when it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="Choose another port with --http-port."
        ) from error
    return listener
