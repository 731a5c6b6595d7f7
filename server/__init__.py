"""The front door: REST gateway, sessions, catalog, statements and the shell.

The only package that knows HTTP, and the only one that sees all others: it asks `planner` for a JobGraph and
hands it to `runtime.api`. `server.cli` is a client like any other and speaks HTTP alone. See ARCHITECTURE.md.
"""
