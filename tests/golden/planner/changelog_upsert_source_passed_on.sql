SET 'parallelism.default' = '4';
EXPLAIN INSERT INTO totals SELECT k, v FROM upserts WHERE k <> 'x';
