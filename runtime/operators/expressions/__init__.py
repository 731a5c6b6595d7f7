"""Typed IR expressions → one generated Python function of straight-line Arrow kernels.

* `compiler.py` compiles: guards for laziness, common sub-expressions, halving to the row that raised.
* `registry.py` maps function ids of `planner.ir.functions` to kernel builders, one file per family.
* Roads of a kernel: Arrow/numpy over Arrow buffers (most files), `duckdb_road.py` (one prepared statement per
  calc), `dictionary_road.py` (one Python call per distinct value, for what no engine does as Java does).

A kernel takes Arrow arrays or scalars (at least one array) and returns an array. NULL in, NULL out, unless the
function says otherwise. Semantics are Apache Flink's, held against recorded answers (`tests/truths`).
"""
