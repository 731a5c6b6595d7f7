SELECT window_start, window_end, channel, SUM(price) AS total
FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, channel
