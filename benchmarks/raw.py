"""The floor under a pipeline: the bare cost of the libraries it stands on, in a process of its own.

`python -m benchmarks.raw --stage decode …` reads a topic to its end and does one step more per stage: `consume` takes
the values, `decode` makes record batches of them with the bare JSON library (none of our checks), `encode` makes JSON
of those again, `produce` sends that to a topic. It prints CPU seconds of the whole process, librdkafka's threads
included, from just before the client is made to the last acknowledgement. As many of these run at once, each over its
share of the partitions, as the pipeline has subtasks.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from typing import Any, cast

import pyarrow as pa
from arro3.io import read_json
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.topics import AUCTION_COLUMNS, COLUMNS, PARTITIONS
from connectors.formats.json.format import FORMAT
from planner.ir.types import arrow_schema

STAGES = ("consume", "decode", "encode", "produce")
MESSAGES_PER_CALL = 1_000
BATCHES_MERGED = 8
ROWS_PER_PIECE = 2_048


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--target", default="")
    parser.add_argument("--partitions", default=",".join(map(str, range(PARTITIONS))))
    parser.add_argument("--stage", choices=STAGES, required=True)
    parser.add_argument("--columns", default=",".join(column.name for column in COLUMNS))
    arguments = parser.parse_args()
    names = arguments.columns.split(",")
    columns = tuple(column for column in (*COLUMNS, *AUCTION_COLUMNS) if column.name in names)
    internal = arrow_schema(tuple(column.type for column in columns))
    wanted = pa.schema([pa.field(c.name, t) for c, t in zip(columns, internal.types, strict=True)])
    encoder = FORMAT.encoder(columns, {}, "UTC")
    stage = STAGES.index(arguments.stage)
    gc.collect()
    gc.freeze()
    gc.disable()

    began_cpu_s, began_s = time.process_time(), time.perf_counter()
    common = {"bootstrap.servers": arguments.bootstrap_servers}
    consumer = Consumer(
        common | {"group.id": "raw", "enable.auto.commit": False, "fetch.queue.backoff.ms": 5, "check.crcs": False}
    )
    partitions = [TopicPartition(arguments.topic, int(number), 0) for number in arguments.partitions.split(",")]
    rows_expected = sum(consumer.get_watermark_offsets(partition)[1] for partition in partitions)
    consumer.assign(partitions)
    producer = Producer(common | {"linger.ms": 5, "queue.buffering.max.messages": 500_000}) if stage == 3 else None
    rows, target_partition = 0, 0
    while rows < rows_expected:
        values: list[bytes] = []
        for _ in range(BATCHES_MERGED):
            # Two calls fetch the values: a message object per record is the client's own cost.
            values.extend(filter(None, (message.value() for message in consumer.consume(MESSAGES_PER_CALL, 0.2))))
            if len(values) + rows >= rows_expected:
                break
        rows += len(values)
        if stage == 0:
            continue
        table = pa.table(read_json(cast(Any, pa.BufferReader(b"\n".join(values))), wanted, batch_size=ROWS_PER_PIECE))
        if stage == 1:
            continue
        batch = table.combine_chunks().to_batches()[0]
        encoded = encoder.encode(pa.RecordBatch.from_arrays(batch.columns, schema=internal))
        if producer is not None:
            target_partition = (target_partition + 1) % PARTITIONS
            records = [{"value": value} for value in encoded.to_pylist()]
            while len(producer) > 200_000:
                producer.poll(0.01)
            producer.produce_batch(arguments.target, records, target_partition)
    if producer is not None:
        producer.flush(60)
    result = {"cpu_s": time.process_time() - began_cpu_s, "wall_s": time.perf_counter() - began_s, "rows": rows}
    print(json.dumps(result), flush=True)
    consumer.close()
    os._exit(0)  # What the clients do while they are taken down is not measured and need not be waited for.


if __name__ == "__main__":
    main()
