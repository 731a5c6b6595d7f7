WITH windowed AS (
  SELECT auction, epoch_ms("dateTime"::TIMESTAMP) // 2000 * 2000 + unnest([2000, 4000, 6000, 8000, 10000]) AS until FROM bid
), counts AS (
  SELECT auction, until, count(*) AS num FROM windowed GROUP BY auction, until
)
SELECT auction, num, make_timestamp_ms(until - 10000), make_timestamp_ms(until)
FROM counts c WHERE num = (SELECT max(num) FROM counts m WHERE m.until = c.until)
