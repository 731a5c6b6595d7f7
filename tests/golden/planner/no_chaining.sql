SET 'pipeline.operator-chaining.enabled' = 'false';
EXPLAIN INSERT INTO log SELECT k, v, d FROM plain WHERE v > 0;
