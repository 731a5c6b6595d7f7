-- The first row to arrive stays: an append-only sink will do.
EXPLAIN INSERT INTO appended
SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY proc) AS rn FROM more) WHERE rn = 1;
