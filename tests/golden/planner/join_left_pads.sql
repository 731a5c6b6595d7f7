EXPLAIN INSERT INTO shown SELECT a.k, b.v FROM src AS a LEFT JOIN more AS b ON a.k = b.k AND a.v > 1 AND b.v > 2
