SELECT COUNT(*) AS n, SUM(price) AS total, MAX(ts) AS latest FROM bids
