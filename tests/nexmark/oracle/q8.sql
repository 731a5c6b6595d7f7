SELECT DISTINCT p.id, p.name, make_timestamp_ms(epoch_ms(p."dateTime"::TIMESTAMP) // 10000 * 10000)
FROM person p
WHERE EXISTS (
  SELECT * FROM auction a
  WHERE a.seller = p.id AND epoch_ms(a."dateTime"::TIMESTAMP) // 10000 = epoch_ms(p."dateTime"::TIMESTAMP) // 10000
)
