-- One rank only: a literal where it is read.
EXPLAIN INSERT INTO pairs
SELECT k, rn FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM src) WHERE rn = 2;
