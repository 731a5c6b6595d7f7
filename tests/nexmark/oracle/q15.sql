SELECT strftime("dateTime", '%Y-%m-%d') AS day, count(*), sum((price < 10000)::INT)::BIGINT, sum((price >= 10000 AND price < 1000000)::INT)::BIGINT,
  sum((price >= 1000000)::INT)::BIGINT,
  count(DISTINCT bidder), count(DISTINCT CASE WHEN price < 10000 THEN bidder END),
  count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN bidder END),
  count(DISTINCT CASE WHEN price >= 1000000 THEN bidder END),
  count(DISTINCT auction), count(DISTINCT CASE WHEN price < 10000 THEN auction END),
  count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN auction END),
  count(DISTINCT CASE WHEN price >= 1000000 THEN auction END)
FROM bid GROUP BY day
