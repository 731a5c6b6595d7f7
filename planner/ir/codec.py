"""Bytes of a JobGraph: msgpack, checked against the types when read."""

from __future__ import annotations

import hashlib

import msgspec

from planner.ir.job_graph import FORMAT_VERSION, JobGraph


class JobGraphFormatError(ValueError):
    """The bytes are not a JobGraph this version can read."""


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(JobGraph)


def encode(graph: JobGraph) -> bytes:
    """Deterministic: equal graphs give equal bytes."""
    return _encoder.encode(graph)


def decode(data: bytes) -> JobGraph:
    """Raises JobGraphFormatError for foreign bytes or another format version."""
    try:
        graph = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise JobGraphFormatError(f"not a job graph: {error}") from error
    if graph.version != FORMAT_VERSION:
        raise JobGraphFormatError(f"job graph format {graph.version} is not {FORMAT_VERSION}")
    return graph


def digest(graph: JobGraph) -> str:
    """A short hex name for the graph's exact content."""
    return hashlib.sha256(encode(graph)).hexdigest()[:16]
