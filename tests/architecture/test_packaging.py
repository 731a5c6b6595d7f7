"""The wheel, the locked requirements and the container files say what they should."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.tree import PACKAGES, ROOT

LOCKS = ("requirements/runtime.txt", "requirements/dev.txt")
ROLES = {"standalone", "jobmanager", "taskmanager", "sql"}
DOCKERFILE_FLAGS = re.findall(r'"(--[a-z-]+)"', (ROOT / "docker" / "Dockerfile").read_text())


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_file_has_a_hash_and_no_host_is_named(lock: str) -> None:
    text = (ROOT / lock).read_text()
    entries = re.findall(r"^[a-z0-9].*?(?=^[a-z0-9]|\Z)", text, re.MULTILINE | re.DOTALL)
    assert entries
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert [line for line in text.splitlines() if "://" in line or re.match(r"--|-[a-z]", line)] == []


def test_the_lock_covers_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"]
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / LOCKS[0]).read_text(), re.MULTILINE))
    assert {re.split(r"[<>=!~]", name)[0].lower() for name in wanted} <= locked


def test_the_wheel_holds_the_four_packages_and_the_console_script(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        tops = {name.split("/")[0] for name in names}
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "headrace = server.__main__:main" in archive.read(entry_points).decode()
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


COMPOSE_FILES = ("compose.yaml", "compose.ha.yaml")


def compose(file: str) -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "docker" / file).read_text())
    assert isinstance(loaded, dict)
    return loaded


def headrace_commands() -> list[list[str]]:
    """The words after `headrace` of every service that runs it."""
    found = []
    for service in [service for file in COMPOSE_FILES for service in compose(file)["services"].values()]:
        if not service["image"].startswith("headrace"):
            continue
        words = service["command"]
        if "entrypoint" in service:
            assert service["entrypoint"] == ["/bin/sh", "-c"]
            shell = shlex.split(words[0])
            assert shell[:2] == ["exec", "headrace"]
            words = shell[2:]
        found.append(words)
    return found


@pytest.mark.parametrize("words", [*headrace_commands(), ["standalone", *DOCKERFILE_FLAGS]], ids=lambda words: words[0])
def test_containers_run_real_roles_with_flags_they_know(words: list[str]) -> None:
    role, *flags = words
    assert role in ROLES
    text = subprocess.check_output([sys.executable, "-m", "server", role, "--help"], cwd=ROOT, text=True)
    known = set(re.findall(r"--[a-z-]+", text))
    assert {flag.split("=")[0] for flag in flags if flag.startswith("--")} <= known


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_compose_refers_to_what_it_defines(file: str) -> None:
    document = compose(file)
    services, volumes = document["services"], set(document["volumes"])
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services), name
        named = {mount.split(":")[0] for mount in service.get("volumes", [])}
        assert {volume for volume in named if not volume.startswith((".", "/"))} <= volumes, name
        for other, condition in service.get("depends_on", {}).items():
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for the health of {other}"
    assert "ports" not in services["taskmanager"], "a fixed host port would stop taskmanager from scaling"
    assert "container_name" not in services["taskmanager"]


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_compose_publishes_on_loopback_only(file: str) -> None:
    published = [port for service in compose(file)["services"].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_image_runs_headrace_without_root() -> None:
    lines = (ROOT / "docker" / "Dockerfile").read_text().splitlines()
    instructions = [line.split(maxsplit=1) for line in lines if line and not line.startswith(("#", " "))]
    final = instructions[max(i for i, words in enumerate(instructions) if words[0] == "FROM") :]
    assert [words[1] for words in final if words[0] == "USER"] == ["headrace"]
    assert ["ENTRYPOINT", '["headrace"]'] in final
    copied = [words[1].split()[:-1] for words in instructions if words[0] == "COPY"]
    sources = [source for group in copied for source in group if not group[0].startswith("--from")]
    assert [source for source in sources if not (ROOT / source).exists()] == []
