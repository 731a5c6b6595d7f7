SELECT window_end, SUM(auction) AS s FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, channel ORDER BY ts DESC) AS rn
  FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE rn = 1 GROUP BY window_start, window_end;
