"""The source tree as data for the architecture tests: modules, their parsed text and their imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("server", "planner", "runtime", "connectors")


@dataclass(frozen=True)
class Module:
    """One Python file: dotted name, name of the package that holds it, path, text and syntax tree."""

    name: str
    package: str
    path: Path
    text: str
    tree: ast.Module


def within(name: str, prefix: str) -> bool:
    """Whether the dotted `name` is `prefix` or lies below it."""
    return name == prefix or name.startswith(prefix + ".")


def modules(root: Path = ROOT, folders: tuple[str, ...] = PACKAGES) -> Iterator[Module]:
    """Every module below the given top folders, in a stable order."""
    for path in sorted(file for folder in folders for file in (root / folder).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        text = path.read_text(encoding="utf-8")
        yield Module(
            name=".".join(parts[:-1] if is_package else parts),
            package=".".join(parts[:-1]),
            path=path,
            text=text,
            tree=ast.parse(text, str(path)),
        )


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def imports_of(module: Module, *, at_run_time_only: bool = False) -> Iterator[str]:
    """Dotted names a module imports, wherever the statement stands.

    `from a import b` gives `a.b`, because `b` may be a module. With `at_run_time_only` the bodies of
    `if TYPE_CHECKING:` are left out.
    """
    skipped: set[ast.AST] = set()
    if at_run_time_only:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.If) and _is_type_checking(node.test):
                skipped.update(inner for statement in node.body for inner in ast.walk(statement))
    for node in ast.walk(module.tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.package.split(".") if module.package else []
            base = parts[: len(parts) - node.level + 1] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{source}.{alias.name}" for alias in node.names)
