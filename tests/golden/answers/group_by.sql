SELECT channel, COUNT(*) AS n, COUNT(bidder) AS bidders, SUM(price) AS total, MIN(price) AS lowest, MAX(price) AS highest, AVG(price) AS mean
FROM bids GROUP BY channel
