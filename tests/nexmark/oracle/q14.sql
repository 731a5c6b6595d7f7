SELECT auction, bidder, 0.908::DECIMAL(4, 3) * price::DECIMAL(19, 0) AS euros,
  CASE
    WHEN extract(hour FROM "dateTime") >= 8 AND extract(hour FROM "dateTime") <= 18 THEN 'dayTime'
    WHEN extract(hour FROM "dateTime") IN (19, 7) THEN 'otherTime'
    ELSE 'nightTime'
  END,
  "dateTime", extra, length(extra) - length(replace(extra, 'c', ''))
FROM bid WHERE euros > 1000000 AND euros < 50000000
