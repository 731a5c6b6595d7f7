"""Kafka as a source and as a sink, exactly once in both directions.

`options` and `properties` understand the WITH clause and load no client; `connector` is the front door. Reading:
`admin` turns topics into `splits` with concrete offsets, `source` reads them by assignment (never by a consumer
group: the checkpoint owns the positions, group offsets are published for lag tools only). Writing: `sink` encodes
and places rows (`partitioner`), `epoch_file` is the write-ahead file of an epoch, `transactions` makes epochs
visible exactly once by a marker record in the same transaction. `client` is the only door to the client library's
configuration and errors.
"""
