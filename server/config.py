"""The settings of all roles: one frozen tree, built once from the commented default file, a file of the user's,
`HEADRACE_…` variables and flags, each above the one before it.
"""

from __future__ import annotations

import difflib
import operator
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec

from server.errors import GatewayError


class ConfigError(GatewayError):
    """A setting is unknown or malformed; the message names it and where it came from."""

    code = "CONFIG_ERROR"


Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
PositiveSeconds = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
LeaseMs = Annotated[int, msgspec.Meta(ge=500)]


class HttpSection(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    host: str
    port: Port
    advertised_url: str


class GatewaySection(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    long_poll_ms: NotNegative
    rows_max: Positive
    session_idle_s: PositiveSeconds
    query_idle_s: PositiveSeconds
    sessions_max: Positive
    check_interval_s: PositiveSeconds


class JobManagerSection(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    data_directory: str
    checkpoint_directory: str
    rpc_host: str
    rpc_port: Port
    heartbeat_interval_ms: Positive
    heartbeat_timeout_ms: Positive
    slots_expected: NotNegative


class HighAvailabilitySection(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    metadata_url: str
    cluster_id: str
    lease_duration_ms: LeaseMs


class TaskManagerSection(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    job_managers: tuple[str, ...]
    host: str
    slots: Positive
    process_bytes: Positive
    work_directory: str
    slot_timeout_ms: Positive
    cancellation_timeout_ms: Positive
    job_manager_loss_timeout_ms: Positive


class StandaloneSection(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    taskmanagers: Positive


class S3Section(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    endpoint: str
    region: str
    access_key: str
    secret_key: str
    path_style_access: bool


class LogSection(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    level: str


class Config(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """Every setting; what each means is in default.toml. `job` holds defaults of session settings."""

    http: HttpSection
    gateway: GatewaySection
    jobmanager: JobManagerSection
    high_availability: HighAvailabilitySection
    taskmanager: TaskManagerSection
    standalone: StandaloneSection
    s3: S3Section
    log: LogSection
    job: dict[str, str]


_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "http": HttpSection,
    "gateway": GatewaySection,
    "jobmanager": JobManagerSection,
    "high-availability": HighAvailabilitySection,
    "taskmanager": TaskManagerSection,
    "standalone": StandaloneSection,
    "s3": S3Section,
    "log": LogSection,
}
_FLINK_NAMES = {"s3.path.style.access": "s3.path-style-access", "s3.endpoint.region": "s3.region"}
"""Names that Flink's users know and that are not ours."""

VARIABLE_PREFIX = "HEADRACE_"
CONFIG_VARIABLE = "HEADRACE_CONFIG"


def load(path: Path | None, environment: Mapping[str, str], flags: Mapping[str, str]) -> Config:
    """The effective settings. `flags` are `section.key` → text; `job.<Flink's key>` sets a job default.

    Raises ConfigError.
    """
    tree = tomllib.loads(resources.files("server").joinpath("default.toml").read_text(encoding="utf-8"))
    tree.setdefault("job", {})
    if path is not None:
        _merge(tree, _read_file(path), str(path))
    for name, key, value in _from_environment(environment):
        _set(tree, key, value, name)
    for key, value in flags.items():
        _set(tree, key, value, f"--{key}")
    try:
        return msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"settings: {error}") from error


def known_keys() -> list[str]:
    """All settings as `section.key`."""
    return [f"{s}.{f.encode_name}" for s, kind in _SECTIONS.items() for f in msgspec.structs.fields(kind)]


def changed(config: Config) -> list[str]:
    """`section.key=value` of every setting that differs from its default: what makes a child like its parent. Those of
    [s3] travel in the environment: arguments of a process can be read by everybody."""
    default = load(None, {}, {})
    pairs = []
    for dotted in known_keys():
        path = dotted.replace("-", "_")
        value, normal = (operator.attrgetter(path)(c) for c in (config, default))
        if value != normal and not dotted.startswith("s3."):
            pairs.append(f"{dotted}={','.join(value) if isinstance(value, tuple) else value}")
    return pairs


def s3_environment(section: S3Section) -> dict[str, str]:
    """The settings as variables that the processes of a cluster and every tool for S3 understand; unset ones are left
    to what the environment says."""
    variables = {
        "AWS_ENDPOINT_URL": section.endpoint,
        "AWS_REGION": section.region,
        "AWS_ACCESS_KEY_ID": section.access_key,
        "AWS_SECRET_ACCESS_KEY": section.secret_key,
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "" if section.path_style_access else "true",
    }
    return {name: value for name, value in variables.items() if value}


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def _merge(tree: dict[str, Any], changes: Mapping[str, Any], origin: str) -> None:
    for section, entries in changes.items():
        if section not in tree or not isinstance(entries, dict):
            raise _unknown(section, list(tree), origin)
        for key, value in entries.items():
            if section == "job":
                tree["job"].update(_flat(key, value))
            elif section == "s3":
                for dotted, text in _flat(key, value):
                    _set(tree, f"s3.{dotted}", text, origin)
            elif key not in tree[section]:
                raise _unknown(f"{section}.{key}", known_keys(), origin)
            else:
                tree[section][key] = value


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Job defaults as text under dotted names, whether written as one quoted key or as nested tables."""
    if isinstance(value, dict):
        for inner, below in value.items():
            yield from _flat(f"{key}.{inner}", below)
    else:
        yield key, str(value).lower() if isinstance(value, bool) else str(value)


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Variable name, setting and text, for every setting that a variable names."""
    for key in known_keys():
        name = VARIABLE_PREFIX + key.replace(".", "_").replace("-", "_").upper()
        if name in environment:
            yield name, key, environment[name]


def _set(tree: dict[str, Any], dotted: str, text: str, origin: str) -> None:
    section, _, key = _FLINK_NAMES.get(dotted, dotted).partition(".")
    if section == "job" and key:
        tree["job"][key] = text
        return
    if section not in _SECTIONS or key not in tree[section]:
        raise _unknown(dotted, known_keys(), origin)
    field = next(f for f in msgspec.structs.fields(_SECTIONS[section]) if f.encode_name == key)
    value: Any = [part.strip() for part in text.split(",")] if isinstance(tree[section][key], list) else text
    try:
        tree[section][key] = msgspec.to_builtins(msgspec.convert(value, field.type, strict=False))
    except msgspec.ValidationError as error:
        raise ConfigError(f"{origin}: '{text}' does not fit: {error}") from error


def _unknown(key: str, candidates: list[str], origin: str) -> ConfigError:
    near = difflib.get_close_matches(key, candidates, n=1)
    return ConfigError(
        f"{origin}: unknown setting '{key}'",
        hint=f"Did you mean '{near[0]}'?" if near else "server/default.toml lists all settings.",
    )
