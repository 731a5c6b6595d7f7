"""The import law: which package may know which, which libraries live behind one door, what is pure.

A wrong import fails the build on the day it is written. Modules are parsed, never imported; one
subprocess shows what a TaskManager and its slots really load.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import PACKAGES, ROOT, Module, imports_of, modules, within

# The longest matching prefix on the left decides; it may import itself and what stands on the right.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "connectors": ("planner.ir.types",),
    "planner.ir": (),
    "planner": ("planner.ir",),
    "runtime": ("planner.ir", "connectors.api", "connectors.errors", "connectors.registry"),
    "server": ("planner", "runtime.api", "connectors.api", "connectors.errors", "connectors.registry"),
    "server.cli": (),  # The shell speaks HTTP only.
}

# `headrace` starts every role, so its entry point alone sees the doors of the other processes.
ENTRY_POINT = "server.__main__"
ENTRY_POINT_MAY_ALSO_IMPORT = ("runtime",)

# Heavy libraries live behind one door each.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "sqlglot": ("planner",),
    "fastapi": ("server",),
    "starlette": ("server",),
    "uvicorn": ("server",),
    "httpx2": ("server",),
    "prompt_toolkit": ("server",),
    "rich": ("server",),
    # server.demo.outside plays the user's own consumer, which proves what the engine wrote.
    "confluent_kafka": ("connectors.kafka", "server.demo.outside"),
    "rocksdict": ("runtime.state.rocksdb",),
    "obstore": ("runtime.checkpoint.object_store",),
    "sqlalchemy": ("runtime.metadata.postgresql",),
    "psycopg": ("runtime.metadata.postgresql", "connectors.jdbc.database"),
}
NEVER_IN: dict[str, tuple[str, ...]] = {"planner.ir": ("sqlglot",)}

# State machines, decisions and arithmetic: they take events and a time and give commands.
PURE = (
    "planner",
    "runtime.elements",
    "runtime.key_groups",
    "runtime.exchange.partitioner",
    "runtime.exchange.credits",
    "runtime.jobmanager.job",
    "runtime.jobmanager.execution_graph",
    "runtime.jobmanager.scheduler",
    "runtime.jobmanager.failover",
    "runtime.checkpoint.coordination",
    "runtime.checkpoint.coordinator",
    "runtime.checkpoint.participants",
    "runtime.checkpoint.pending",
    "runtime.checkpoint.rhythm",
    "runtime.checkpoint.wishes",
    "runtime.checkpoint.manifest",
    "runtime.checkpoint.recovery",
    "runtime.taskmanager.barrier_aligner",
    "runtime.metadata.election",
)
IMPURE_LIBRARIES = frozenset(
    "asyncio multiprocessing os random secrets signal socket subprocess threading time".split()
)

# What must stay out of the processes that touch data: the SQL front end and the HTTP stack.
NEVER_LOADED_BY_WORKERS = frozenset("sqlglot fastapi starlette uvicorn httpx2 pydantic server".split())


def law_violations(module: Module) -> Iterator[str]:
    rule = max((prefix for prefix in MAY_IMPORT if within(module.name, prefix)), key=len)
    allowed = (rule, *MAY_IMPORT[rule])
    if module.name == ENTRY_POINT:
        allowed += ENTRY_POINT_MAY_ALSO_IMPORT
    for target in imports_of(module):
        top = target.split(".")[0]
        if top in PACKAGES and not any(within(target, prefix) for prefix in allowed):
            yield f"{module.name}: may not import {target}"
        if top in {"tests", "benchmarks"}:
            yield f"{module.name}: production code may not import {target}"
        for library, homes in ONLY_IN.items():
            if within(target, library) and not any(within(module.name, home) for home in homes):
                yield f"{module.name}: {library} belongs in {', '.join(homes)}"
        for prefix, banned in NEVER_IN.items():
            if within(module.name, prefix) and any(within(target, library) for library in banned):
                yield f"{module.name}: {target} is banned here"
    if any(within(module.name, prefix) for prefix in PURE):
        for target in imports_of(module, at_run_time_only=True):
            if target.split(".")[0] in IMPURE_LIBRARIES:
                yield f"{module.name}: a pure module imports {target}"


def violations(root: Path = ROOT) -> list[str]:
    return [found for module in modules(root) for found in law_violations(module)]


def test_no_module_breaks_the_import_law() -> None:
    assert violations() == []


def test_worker_processes_load_neither_sql_nor_http() -> None:
    """Not one module of runtime and connectors brings in the SQL or HTTP stack, not even indirectly."""
    names = [module.name for module in modules(ROOT, ("runtime", "connectors")) if not module.name.endswith("__main__")]
    code = "import importlib, sys\n"
    code += f"for name in {names!r}: importlib.import_module(name)\n"
    code += "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split()
    assert NEVER_LOADED_BY_WORKERS.intersection(loaded) == set()


PLANTED = {
    "connectors/bad.py": ("import runtime.elements", "may not import runtime.elements"),
    "connectors/worse.py": ("from planner.ir import job_graph", "may not import planner.ir.job_graph"),
    "planner/bad.py": ("from runtime import api", "may not import runtime.api"),
    "planner/clock.py": ("import time", "a pure module imports time"),
    "planner/ir/bad.py": ("import sqlglot", "sqlglot is banned here"),
    "runtime/bad.py": ("from connectors.kafka import source", "may not import connectors.kafka.source"),
    "runtime/http.py": ("import starlette.routing", "starlette belongs in server"),
    "server/bad.py": ("from runtime.jobmanager import job", "may not import runtime.jobmanager.job"),
    "server/cli/bad.py": ("import planner.api", "may not import planner.api"),
    "server/kafka.py": ("import confluent_kafka", "confluent_kafka belongs in connectors.kafka"),
    "runtime/peek.py": ("from tests.support import kafka", "production code may not import tests.support"),
}


@pytest.mark.parametrize("file", PLANTED)
def test_a_planted_violation_is_found(file: str, tmp_path: Path) -> None:
    text, expected = PLANTED[file]
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text + "\n")
    assert any(expected in found for found in violations(tmp_path)), violations(tmp_path)


def test_package_files_hold_a_docstring_and_nothing_else() -> None:
    """Importing one module of a package must load nothing beside it; the docstring is the package's note."""
    wrong = []
    for module in modules():
        if module.path.name != "__init__.py":
            continue
        if ast.get_docstring(module.tree) is None or len(module.tree.body) != 1:
            wrong.append(module.name)
    assert wrong == []


def test_http_answers_before_the_planner_is_loaded() -> None:
    code = "import server.http.serve, sys; print('planner.api' in sys.modules, 'sqlglot' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
