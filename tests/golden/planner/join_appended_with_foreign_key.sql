SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO shown SELECT a.k, u.v FROM src AS a JOIN upserts AS u ON a.k = u.k
