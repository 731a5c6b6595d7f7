"""The HTTP surface: one application, one port. The only package that knows status codes.

`app.py` wires the routes: the SQL Gateway API (`gateway.py`), the JobManager's monitoring API (`jobs.py`),
Prometheus text (`metrics.py`) and health. `results.py` makes a result page of Arrow rows with `logical_types.py`,
`json_values.py` and `plain_text.py`; `errors.py` turns exceptions into the error bodies Flink's clients read.
"""
