"""One of several JobManagers: a standby until it is elected, then the leader until it loses the lease."""

from __future__ import annotations

import asyncio
import socket

from runtime.config import HighAvailabilitySettings, JobManagerSettings
from runtime.jobmanager.endpoint import StandbyEndpoint, bind_rpc
from runtime.jobmanager.process import JobManager
from runtime.metadata.election import RENEWALS_PER_LEASE, Contact
from runtime.metadata.leadership import Leadership
from runtime.metadata.postgresql import PostgresDatabase, PostgresLeaseStore, PostgresMetadataStore


class Candidate:
    """Implements `runtime.api.LeaderView`. Once `run` has returned its process must begin anew: nothing that an old
    leadership left in memory may meet the next one."""

    def __init__(self, settings: JobManagerSettings, availability: HighAvailabilitySettings, rest_url: str) -> None:
        """Opens the port for TaskManagers. Raises OSError when it is taken, MetadataUrlError."""
        self._settings = settings
        self._availability = availability
        lease_ms = availability.lease_duration_ms
        # A renewal that hangs must leave time for another one.
        leases = self._database(lease_ms // RENEWALS_PER_LEASE)
        self._records = self._database(lease_ms)
        self._listener = bind_rpc(settings.rpc_host, settings.rpc_port)
        host, port = self._listener.getsockname()[:2]
        contact = Contact(f"{socket.gethostname()} {host}:{port}", rest_url)
        self._leadership = Leadership(PostgresLeaseStore(leases), contact, lease_ms)
        self._standby = StandbyEndpoint(self._listener)

    @property
    def leads(self) -> bool:
        return self._leadership.lease.is_held

    @property
    def leader_url(self) -> str:
        leader = self._leadership.leader
        return leader.rest_url if leader is not None else ""

    async def run(self) -> str:
        """Stands for election; returns why this JobManager does not lead any more (empty: it has resigned). Raises
        MetadataUrlError."""
        await self._standby.start()
        return await self._leadership.run()

    async def elected(self) -> JobManager:
        """The JobManager, leading, once it is this one's turn. Raises StaleLeaderError when that was over at once."""
        token = await self._leadership.elected()
        await self._standby.stop()
        store = PostgresMetadataStore(self._records, token, self._leadership.lease)
        job_manager = JobManager(self._settings, store, may_lead=lambda: self.leads)
        self._watching = asyncio.create_task(self._watch(job_manager))
        return await job_manager.lead(self._listener)

    async def resign(self) -> None:
        """The JobManager has stopped: a standby may lead at once."""
        await self._leadership.resign()

    async def _watch(self, job_manager: JobManager) -> None:
        await job_manager.lost_leadership()
        self._leadership.step_down("a record could not be written")

    def _database(self, timeout_ms: int) -> PostgresDatabase:
        return PostgresDatabase(self._availability.metadata_url, self._availability.cluster_id, timeout_ms)
