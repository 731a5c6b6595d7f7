SET 'parallelism.default' = '4';
EXPLAIN INSERT INTO log (n, k) SELECT v, k FROM src UNION ALL SELECT v, k FROM more UNION ALL SELECT v, k FROM src WHERE v > 0;
