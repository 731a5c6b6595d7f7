WITH numbered AS (
  SELECT *, CASE WHEN url LIKE '%&channel_id=%' THEN string_split(string_split(url, '&channel_id=')[2], '&')[1] END AS n,
    list_position(['apple', 'google', 'facebook', 'baidu'], lower(channel)) - 1 AS known
  FROM bid
)
SELECT auction, bidder, price, channel, coalesce(known::VARCHAR, n)
FROM numbered WHERE n IS NOT NULL OR known IS NOT NULL
