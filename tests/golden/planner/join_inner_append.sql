SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO shown SELECT a.k, b.v FROM src AS a JOIN more AS b ON a.k = b.k AND b.v > a.v
