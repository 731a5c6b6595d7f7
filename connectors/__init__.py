"""The outside world behind a few small protocols: where rows come from and where they go.

`api` names the protocols (connector, split, reader, writer, committer, format) and `registry` finds a connector
by its name and loads it only when a job uses it. Each connector is a package of its own: `kafka`, `filesystem`,
`nexmark`, `datagen`, `print`, `blackhole`. `formats` turns bytes into record batches and back, a whole batch at
a time. A connector knows the type system of the plan (`planner.ir.types`) and nothing else of the project.
"""
