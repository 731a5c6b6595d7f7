SELECT window_start, window_end, COUNT(*) AS n, MAX(price) AS highest, COUNT(DISTINCT bidder) AS bidders
FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND)) GROUP BY window_start, window_end
