SELECT auction, COUNT(*) AS n, SUM(price) AS total FROM bids WHERE channel = 'web' GROUP BY auction HAVING COUNT(*) >= 2
