-- Last bid: the latest bid of each bidder on each auction. A deduplication.
SELECT auction, bidder, price, channel, url, `dateTime`, extra
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS place FROM bid
)
WHERE place = 1
