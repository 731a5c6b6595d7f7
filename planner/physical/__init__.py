"""Logical plan → operators → chains → JobGraph, with parallelism, exchanges and stable uids."""
