EXPLAIN INSERT INTO out_t
SELECT k, window_start, cnt FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY cnt DESC) AS rn FROM (
    SELECT k, window_start, window_end, COUNT(*) AS cnt FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
    GROUP BY k, window_start, window_end))
WHERE rn <= 3;
