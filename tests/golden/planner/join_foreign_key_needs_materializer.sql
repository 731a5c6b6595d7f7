SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO claims SELECT u.k, c.id FROM cdc AS c JOIN upserts AS u ON c.k = u.k
