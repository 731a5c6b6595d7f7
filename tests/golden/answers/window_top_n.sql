SELECT window_start, auction, c, rn FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY c DESC, auction) AS rn FROM (
    SELECT auction, window_start, window_end, COUNT(*) AS c
    FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY auction, window_start, window_end))
WHERE rn <= 2;
