"""Elements between tasks.

A *channel* joins one producer subtask to one consumer subtask. The producer's side is an `OutputChannel` (local: in
the same slot process, passes the reference; remote: framed on the one TCP connection of a pair of slots), the
consumer's side an `InputChannel` in its task's `Inbox`. Batches move only against the consumer's byte credit; control
elements (watermark, status, barrier, end) need none. A `RecordWriter` spreads one edge's rows over its channels.
"""
