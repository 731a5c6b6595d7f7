CREATE VIEW counted AS SELECT k, COUNT(*) AS c FROM src GROUP BY k;
EXPLAIN SELECT k, c * 2 AS twice FROM counted WHERE c > 1
