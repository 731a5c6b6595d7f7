EXPLAIN SELECT r.x, plain.r.y.z, tags[1], props['a'], CAST(d AS INT) FROM plain WHERE r.y.z IS NOT NULL;
