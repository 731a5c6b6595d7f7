SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO totals
SELECT b.k, a.v + b.v FROM upserts AS a JOIN timed_upserts AS b ON a.k = b.k
