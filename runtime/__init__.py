"""Runs JobGraphs: JobManager, TaskManagers, slot processes, exchange, state and checkpoints.

`api` is what a client of the runtime sees. `jobmanager` and `checkpoint` decide, in pure cores with thin shells;
`taskmanager` supervises slot processes and runs tasks in them; `operators` work on record batches; `exchange`
moves them; `state` keeps what must survive. SQL text and HTTP are unknown here.
"""
