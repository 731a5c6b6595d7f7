"""Settings of all roles: file, environment, flags, and what is wrong in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.config import ConfigError, changed, known_keys, load, s3_environment
from server.settings import check_server_defaults

COMMAND = [sys.executable, "-P", "-m", "server"]


def test_each_layer_is_above_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text('[http]\nport = 1\n[taskmanager]\nslots = 3\n[job]\n"parallelism.default" = 2\n')
    config = load(file, {"HEADRACE_HTTP_PORT": "2", "HEADRACE_GATEWAY_ROWS_MAX": "7"}, {"http.port": "3"})
    assert (config.http.port, config.gateway.rows_max, config.taskmanager.slots) == (3, 7, 3)
    assert config.job == {"parallelism.default": "2"}
    assert load(file, {"HEADRACE_HTTP_PORT": "2"}, {}).http.port == 2
    assert load(None, {}, {}).http.host == "127.0.0.1"


def test_job_defaults_may_be_nested_tables(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(
        '[job.execution.checkpointing]\ninterval = "3 s"\n[job.pipeline.operator-chaining]\nenabled = false\n'
    )
    assert load(file, {}, {}).job == {
        "execution.checkpointing.interval": "3 s",
        "pipeline.operator-chaining.enabled": "false",
    }


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[http]\nprot = 1\n", "unknown setting 'http.prot'", "Did you mean 'http.port'?"),
        ("[htpt]\nport = 1\n", "unknown setting 'htpt'", "Did you mean 'http'?"),
        ("[http]\nport = 'x'\n", "Expected `int`", ""),
        ("[http\n", "is not TOML", ""),
    ],
)
def test_a_wrong_file_is_an_error(tmp_path: Path, text: str, message: str, hint: str) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load(file, {}, {})
    assert message in error.value.message
    assert error.value.hint == hint or not hint


def test_unknown_job_defaults_are_errors_in_the_servers_own_settings() -> None:
    check_server_defaults({"parallelism.default": "2"})
    with pytest.raises(ConfigError, match="paralelism"):
        check_server_defaults({"paralelism.default": "2"})
    with pytest.raises(ConfigError, match="could not parse"):
        check_server_defaults({"parallelism.default": "two"})


def test_a_child_gets_what_differs_from_the_defaults() -> None:
    config = load(None, {}, {"taskmanager.slots": "5", "taskmanager.job-managers": "a:1,b:2"})
    pairs = changed(config)
    assert pairs == ["taskmanager.job-managers=a:1,b:2", "taskmanager.slots=5"]
    assert load(None, {}, dict(pair.split("=", 1) for pair in pairs)) == config


def test_every_setting_has_a_default_and_a_comment_above_it() -> None:
    text = (Path(__file__).parents[3] / "server" / "default.toml").read_text()
    assert all(f"\n{key.partition('.')[2]} = " in text for key in known_keys())


def run(*arguments: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, "-P", "-m", "server", *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("jobmanager", "--set", "http.prot=1"), "unknown setting 'http.prot'"),
        (("jobmanager", "--http-port", "x"), "Expected `int`"),
        (("standalone", "--slots", "0"), "'0' does not fit"),
        (("standalone", "--taskmanagers", "-1"), "'-1' does not fit"),
        (("standalone", "--http-port", "70000"), "'70000' does not fit"),
        (("taskmanager", "--job-managers", "nowhere"), "is not host:port"),
        (("jobmanager", "-D", "no-such.setting=1"), "is not a setting with effect"),
        (("nonsense",), "invalid choice"),
        (("standalone", "--config", "/missing.toml"), "cannot read /missing.toml"),
    ],
)
def test_wrong_usage_is_said_in_a_line(arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_help_has_examples() -> None:
    assert "--taskmanagers 2 --slots 2" in run("--help").stdout
    assert "exit codes" in run("sql", "--help").stdout


def test_assertions_cannot_be_switched_off() -> None:
    done = run("standalone", python=("-O",))
    assert done.returncode == 1
    assert "python -O" in done.stderr


@pytest.mark.parametrize(
    ("code", "banned"),
    [
        (
            "import server.__main__, runtime.taskmanager.process",
            {"sqlglot", "fastapi", "starlette", "uvicorn", "httpx2"},
        ),
        ("import server.cli.main", {"fastapi", "starlette", "sqlglot", "pyarrow", "planner", "runtime", "rich"}),
        ("import server.__main__, runtime.launcher, server.http.listener", {"fastapi", "sqlglot", "planner"}),
    ],
)
def test_a_role_loads_only_what_it_needs(code: str, banned: set[str]) -> None:
    loaded = subprocess.check_output(
        [sys.executable, "-P", "-c", f"{code}\nimport sys\nprint(*{{n.split('.')[0] for n in sys.modules}})"], text=True
    )
    assert banned.intersection(loaded.split()) == set()


def test_s3_is_known_by_flinks_names_and_travels_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text('[s3]\nendpoint = "https://minio:9000"\npath.style.access = false\n')
    config = load(file, {"HEADRACE_S3_ACCESS_KEY": "me"}, {"s3.secret-key": "hidden", "s3.endpoint.region": "eu-1"})
    assert s3_environment(config.s3) == {
        "AWS_ENDPOINT_URL": "https://minio:9000",
        "AWS_REGION": "eu-1",
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
    }
    assert s3_environment(load(None, {}, {}).s3) == {}
    assert changed(config) == []
    with pytest.raises(ConfigError, match=r"unknown setting 's3.secret'"):
        load(None, {}, {"s3.secret": "x"})
