"""What survives the JobManager: small records in SQLite (`store`), and what a job's records are (`jobs`).

Every write is durable when it returns and is refused once another JobManager has raised the leader token. The
checkpoint pointer lives here too: moving it, conditional on token and old pointer, is the commit point of a checkpoint.
"""
