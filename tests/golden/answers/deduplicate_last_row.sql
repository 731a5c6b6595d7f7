SELECT auction, bidder, price
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY ts DESC) AS rn FROM bids) WHERE rn = 1;
