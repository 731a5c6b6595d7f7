-- The time attribute lives on: the rows can be counted in windows.
EXPLAIN WITH latest AS (
  SELECT k, v, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM src) WHERE rn = 1)
SELECT window_end, COUNT(*) FROM TUMBLE(TABLE latest, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end;
