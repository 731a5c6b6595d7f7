-- Nobody reads the rank: rows enter and leave, and other conjuncts stay above.
EXPLAIN SELECT key_name, v FROM (
  SELECT k AS key_name, v, number + 0 AS other, number FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC NULLS LAST, ts) AS number FROM src))
WHERE number > 1 AND 5 >= number AND v > 0;
