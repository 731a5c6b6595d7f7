SET 'parallelism.default' = '2';
EXPLAIN SELECT window_start, window_end, key_name, SUM(v) AS total, AVG(v * 2) FILTER (WHERE v < 100) AS mean
FROM TABLE(TUMBLE(DATA => TABLE positive, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' HOUR, `OFFSET` => INTERVAL '15' MINUTE))
GROUP BY window_start, window_end, key_name
HAVING COUNT(*) > 3;
