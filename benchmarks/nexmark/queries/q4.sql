-- Average price of a category: the mean of what its auctions were sold for, kept up to date.
SELECT category, AVG(final) AS average
FROM (
  SELECT a.id, a.category, MAX(b.price) AS final
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  GROUP BY a.id, a.category
)
GROUP BY category
