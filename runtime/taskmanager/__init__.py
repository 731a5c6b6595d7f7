"""The worker: a light supervisor process (`process.py`) and one child process per slot (`slot.py`).

A slot serves one job once. Its main thread speaks with the supervisor, an I/O thread owns the data sockets, each task
(`task.py`) is a thread: input channels → barrier alignment and watermark merge → operator chain → record writers.
Snapshots are encoded and sinks commit in helper threads of the task. `barrier_aligner.py` and `watermark_valve.py`
are pure.
"""
