WITH latest AS (
  SELECT auction, price, bidder FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY ts DESC) AS rn FROM bids) WHERE rn = 1 AND price < 13)
SELECT a.auction, a.bidder, a.ts, v.price FROM bids a LEFT JOIN latest FOR SYSTEM_TIME AS OF a.ts AS v ON a.auction = v.auction
