WITH highest AS (
  SELECT epoch_ms("dateTime"::TIMESTAMP) // 10000 AS part, max(price) AS price FROM bid GROUP BY part
)
SELECT b.auction, b.price, b.bidder, b."dateTime", b.extra
FROM bid b JOIN highest h ON b.price = h.price
  AND epoch_ms(b."dateTime"::TIMESTAMP) >= h.part * 10000 AND epoch_ms(b."dateTime"::TIMESTAMP) <= h.part * 10000 + 10000
