"""Checkpoints: when they are taken, what they hold, where they live, and what a new start takes over from them.

`coordinator` decides (pure), `snapshot` and `manifest` are the records, `store` keeps the files, `recovery` turns a
manifest into restore records at any parallelism (pure). The order of durable effects is the whole point:

    next id durable → barriers → all acks → files verified → manifest durable → pointer moved (the commit point)
    → COMMIT to the sinks → all committed → older checkpoints removed → next checkpoint

What is not pointed to does not count: a crash before the pointer's move restores the checkpoint before; after it, the
sinks of the next start find their epochs in the manifest and commit those that their markers say are missing.
"""
