EXPLAIN INSERT INTO shown SELECT s.k, s.v FROM src AS s WHERE EXISTS (SELECT 1 FROM cdc AS c WHERE c.k = s.k AND c.v > s.v)
