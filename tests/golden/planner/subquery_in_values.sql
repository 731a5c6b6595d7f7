EXPLAIN SELECT k FROM src WHERE v IN (VALUES 1, 2) AND (k, v) IN (('a', 1), ('b', 2))
