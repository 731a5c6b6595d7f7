SELECT window_start, window_end, channel, auction, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '30' SECOND)) GROUP BY window_start, window_end, ROLLUP (channel, auction)
