SELECT window_start, window_end, MAX(n) AS most, COUNT(*) AS auctions
FROM (SELECT window_start, window_end, auction, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, auction) AS per_auction
GROUP BY window_start, window_end
