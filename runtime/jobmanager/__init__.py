"""The JobManager: holds job graphs, hands out slots, triggers checkpoints, decides on failures. It touches no data.

Pure cores decide: `job` (states of one job), `execution_graph` (its tasks), `scheduler` (slots of the cluster),
`failover` (restart or not), `deployment` (task descriptors); the checkpoint coordinator is in `runtime.checkpoint`.
Shells act: `job_master` runs one job's cores as an actor (one queue, one task: events in, commands performed in
order), `preparation` does the blocking work of a start on a helper thread, `endpoint` talks to TaskManagers, `process`
puts them together and is the `JobClient`.
"""
