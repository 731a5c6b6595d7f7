EXPLAIN SELECT a.k, b.id, c.v FROM src AS a, more AS b, plain AS c
WHERE a.k = b.k AND c.k = b.k AND a.v > 1 AND b.v + c.v > a.v AND b.id = 7
