SELECT n, COUNT(*) AS auctions, MAX(total) AS dearest
FROM (SELECT auction, COUNT(*) AS n, SUM(price) AS total FROM bids GROUP BY auction) AS per_auction GROUP BY n
