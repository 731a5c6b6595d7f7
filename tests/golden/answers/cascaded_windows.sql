SELECT window_start, window_end, SUM(n) AS n, COUNT(*) AS parts
FROM TABLE(TUMBLE(TABLE (SELECT window_time AS t, auction, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY window_start, window_end, window_time, auction), DESCRIPTOR(t), INTERVAL '30' SECOND))
GROUP BY window_start, window_end
