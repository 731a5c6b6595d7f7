EXPLAIN WITH a AS (SELECT k, window_start, window_end, COUNT(*) AS n FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY k, window_start, window_end),
b AS (SELECT window_start, window_end, MAX(n) AS top FROM a GROUP BY window_start, window_end)
SELECT a.k, a.n, a.window_start FROM a JOIN b ON a.n = b.top AND a.window_start = b.window_start AND a.window_end = b.window_end
