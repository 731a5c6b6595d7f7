"""SQL text to JobGraph: pure functions, no clock and no I/O.

`api` is the place to start reading. `sql` splits and parses, `analysis` binds names and types, `logical` and
`streaming` hold the tree and its changelog and watermark properties, `physical` builds the JobGraph. What leaves
the planner is the plain frozen data of `planner.ir`. Runtime, connectors and server are unknown here.
"""
