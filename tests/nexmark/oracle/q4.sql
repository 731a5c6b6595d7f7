WITH finals AS (
  SELECT a.id, any_value(a.category) AS category,
    (SELECT max(b.price) FROM bid b
     WHERE b.auction = a.id AND b."dateTime" >= a."dateTime" AND b."dateTime" <= a.expires) AS final
  FROM auction a GROUP BY a.id, a."dateTime", a.expires
)
SELECT category, sum(final) // count(final) FROM finals WHERE final IS NOT NULL GROUP BY category
