SELECT auction, strftime("dateTime", '%Y-%m-%d') AS day, count(*), sum((price < 10000)::INT)::BIGINT,
  sum((price >= 10000 AND price < 1000000)::INT)::BIGINT, sum((price >= 1000000)::INT)::BIGINT,
  min(price), max(price), (sum(price) // count(*))::BIGINT, sum(price)::BIGINT
FROM bid GROUP BY auction, day
