"""Settings of the runtime's processes: frozen records, built once by the entry point and passed in."""

from __future__ import annotations

import msgspec


class JobManagerSettings(msgspec.Struct, frozen=True):
    """`data_directory` holds the metadata store and, unless `checkpoint_directory` is set, the checkpoints."""

    data_directory: str
    checkpoint_directory: str = ""
    rpc_host: str = "127.0.0.1"
    rpc_port: int = 6123
    heartbeat_interval_ms: int = 10_000
    heartbeat_timeout_ms: int = 50_000
    job_defaults: dict[str, str] = {}
    """Default job settings (Flink's keys) below what a session sets."""


class HighAvailabilitySettings(msgspec.Struct, frozen=True):
    """Several JobManagers. `metadata_url` is a PostgreSQL database, `cluster_id` what they have in common in it."""

    metadata_url: str
    cluster_id: str = "default"
    lease_duration_ms: int = 5_000


class TaskManagerSettings(msgspec.Struct, frozen=True):
    """`process_bytes` is the budget of the whole TaskManager, shared equally by its slots."""

    job_manager_addresses: tuple[tuple[str, int], ...]
    host: str = "127.0.0.1"
    slot_count: int = 2
    process_bytes: int = 2_000_000_000
    work_directory: str = ""
    slot_timeout_ms: int = 30_000
    cancellation_timeout_ms: int = 30_000
    job_manager_loss_timeout_ms: int = 60_000
