"""`make demo` and `make demo-kafka`: what Headrace does, shown on a cluster of its own over HTTP.

`cluster` starts and stops a standalone cluster, `nexmark` shows a continuous windowed query, `kafka` an exactly-once
pipeline that survives the death of a TaskManager. Each demo is a script: read it from the top.
"""
