-- The input's key finds the row that a change is of; -U is asked for.
EXPLAIN INSERT INTO totals
SELECT k, n FROM (SELECT k, COUNT(*) AS n, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC) AS rn FROM src GROUP BY k)
WHERE rn <= 10;
