SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO shown SELECT s.k, s.v FROM src AS s WHERE NOT EXISTS (SELECT 1 FROM more AS m WHERE m.k = s.k)
