-- Winning bids: the highest bid of each auction while it was open, the earliest of equals.
SELECT id, itemName, seller, category, `dateTime`, expires, bidder, price, bid_time
FROM (
  SELECT a.*, b.bidder, b.price, b.`dateTime` AS bid_time,
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`dateTime`) AS place
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
)
WHERE place = 1
