-- Highest bid: the bids of the highest price of each ten seconds.
SELECT b.auction, b.price, b.bidder, b.`dateTime`, b.extra
FROM bid AS b
JOIN (
  SELECT MAX(price) AS highest, window_end AS until
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) AS h ON b.price = h.highest
WHERE b.`dateTime` BETWEEN h.until - INTERVAL '10' SECOND AND h.until
