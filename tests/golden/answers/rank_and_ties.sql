SELECT auction, price, r
FROM (SELECT *, DENSE_RANK() OVER (PARTITION BY channel ORDER BY auction) AS r FROM bids) WHERE r IN (2, 3);
