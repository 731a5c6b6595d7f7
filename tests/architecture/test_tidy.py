"""Budgets of size, and words that must not be in the tree."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator

from tests.architecture.tree import PACKAGES, ROOT, Module, modules

LINES_PER_MODULE_MAX = 600
LINES_PER_FUNCTION_MAX = 70
METHODS_PER_CLASS_MAX = 25
CONSTRUCTOR_ARGUMENTS_MAX = 12

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef

# One letter of each word stands in brackets, so that this file does not match itself.
BANNED_EVERYWHERE = {
    "unfinished work": re.compile(r"\bTOD[O]\b|\bFIXM[E]\b"),
    "a path of one machine": re.compile(r"/wor[k]/|/roo[t]/|/hom[e]/(?!headrace)\w"),
    "a registry host": re.compile(
        r"pyp[i]\.org|pythonhoste[d]|repo1?\.mave[n]|mave[n]\.apache\.org/(?!xsd|POM)", re.IGNORECASE
    ),
    "an unresolved merge": re.compile(r"^(<{7}|>{7}) ", re.MULTILINE),
}
BANNED_IN_CODE = {
    "a debugger": re.compile(r"\bbreakpoin[t]\(\)|\bpdb\.set_trac[e]"),
    "mypy silenced without its code": re.compile(r"# type: ignor[e](?!\[)"),
    "a blanket noqa": re.compile(r"# noq[a](?!:)"),
}
BANNED_IN_PACKAGES = {
    # Before Python 3.12 it can swallow a cancellation that comes as the awaited thing ends: a process that was told to
    # stop then runs on. `async with asyncio.timeout(…)` cannot.
    "a wait that may swallow cancellation": re.compile(r"asyncio\.wait_fo[r]\("),
}
SOURCE_FOLDERS = (*PACKAGES, "tests", "benchmarks")


def budget_violations(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > LINES_PER_MODULE_MAX:
        yield f"{module.name}: {lines} lines, at most {LINES_PER_MODULE_MAX}"
    for node in ast.walk(module.tree):
        if isinstance(node, FUNCTIONS):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LINES_PER_FUNCTION_MAX:
                yield f"{module.name}.{node.name}: {length} lines, at most {LINES_PER_FUNCTION_MAX}"
            arguments = len(node.args.args) + len(node.args.kwonlyargs) - 1
            if node.name == "__init__" and arguments > CONSTRUCTOR_ARGUMENTS_MAX:
                yield f"{module.name}.__init__: {arguments} arguments, at most {CONSTRUCTOR_ARGUMENTS_MAX}"
        elif isinstance(node, ast.ClassDef):
            methods = sum(isinstance(item, FUNCTIONS) for item in node.body)
            if methods > METHODS_PER_CLASS_MAX:
                yield f"{module.name}.{node.name}: {methods} methods, at most {METHODS_PER_CLASS_MAX}"


def test_budgets_hold() -> None:
    found = [violation for module in modules(ROOT, SOURCE_FOLDERS) for violation in budget_violations(module)]
    assert found == []


def tracked_texts() -> Iterator[tuple[str, str]]:
    """Name and text of every file that is, or would be, in the repository."""
    names = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    for name in names.splitlines():
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_no_banned_words() -> None:
    found = []
    for name, text in tracked_texts():
        patterns = BANNED_EVERYWHERE | (BANNED_IN_CODE if name.endswith(".py") else {})
        if name.split("/")[0] in PACKAGES:
            patterns |= BANNED_IN_PACKAGES
        for what, pattern in patterns.items():
            match = pattern.search(text)
            if match is not None:
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{name}:{line}: {what}: {match.group(0)!r}")
    assert found == []


def test_the_docker_folder_never_becomes_a_package() -> None:
    """A plain ./docker folder loses to the docker client library; with __init__.py it would hide it."""
    assert not (ROOT / "docker" / "__init__.py").exists()
