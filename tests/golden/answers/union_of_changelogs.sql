SELECT kind, SUM(n) AS n FROM (
  SELECT 'city' AS kind, COUNT(*) AS n FROM users GROUP BY city
  UNION ALL SELECT 'channel' AS kind, COUNT(*) AS n FROM bids GROUP BY channel
) AS both_kinds GROUP BY kind
