SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO claims SELECT a.k, b.id FROM src AS a JOIN cdc AS b ON a.v = b.id
