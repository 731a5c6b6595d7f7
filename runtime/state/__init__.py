"""Keyed state behind one interface (`protocol`), its in-memory backend (`memory`) and the snapshot format (`segments`).

State is columnar: a window of a subtask is a list of immutable record batches over all its key groups, with the key
group as first column. A snapshot takes references to those batches and is encoded elsewhere; every backend writes the
same segments, so a job may change backend or parallelism between two runs.
"""
