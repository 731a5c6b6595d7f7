"""SQL text → JobGraph. Pure: no I/O, clock, threads or randomness.

Start reading at `api.py`. The phases, each meeting the next in plain data: `sql` (split, parse, closed union of
statements) → `analysis` (names, types, time attributes → typed IR) → `logical` (frozen tree and rewrite rules) →
`streaming` (changelog mode, upsert keys, emission, watermarks, state bound) → `physical` (operators, chains,
JobGraph). What leaves the planner is defined in `ir`.
"""
