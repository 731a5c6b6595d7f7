SET 'parallelism.default' = '4';
EXPLAIN INSERT INTO log SELECT k, v + 1, 2 FROM src WHERE v > 1 + 2 AND TRUE AND k LIKE 'a%';
