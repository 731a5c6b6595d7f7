EXPLAIN INSERT INTO shown SELECT w.k, w.n + u.v FROM
  (SELECT k, window_start, window_end, COUNT(*) AS n
   FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY k, window_start, window_end) AS w
  JOIN upserts AS u ON w.k = u.k
