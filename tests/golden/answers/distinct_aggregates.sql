SELECT auction, COUNT(DISTINCT bidder) AS bidders, COUNT(DISTINCT channel) FILTER (WHERE price > 10) AS dear_channels, SUM(DISTINCT price) AS total
FROM bids GROUP BY auction
