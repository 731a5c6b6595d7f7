"""Batch equivalence: the folded changelog of a streaming query equals the answer of the same query over the same rows
in batch, for random schemas, rows, updates, deletes, orders, batch cuts, parallelism, checkpoints and crashes.

The oracle is DuckDB, over SQL that spells out Flink's result types; it shares neither planner nor kernels with us.
"""
