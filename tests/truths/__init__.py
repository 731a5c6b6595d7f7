"""Truths: answers recorded from Apache Flink 2.2, kept as data beside the script that recorded them.

`definitions_*.py` say what to ask (tables of inputs, expressions over them), `record.py` asks a real Flink
(`apache-flink` from PyPI, in an environment of its own) and writes one `*.json` per definitions module,
`reader.py` reads them for tests. Headrace must give the same type and the same value, row by row.
"""
