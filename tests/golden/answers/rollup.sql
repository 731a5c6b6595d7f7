SELECT channel, auction, GROUPING_ID(channel, auction) AS level, COUNT(*) AS n FROM bids GROUP BY ROLLUP (channel, auction)
