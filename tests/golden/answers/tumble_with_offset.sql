SELECT window_start, window_end, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '-4' SECOND)) GROUP BY window_start, window_end
