EXPLAIN SELECT a.k, b.id, c.f FROM src AS a, more AS b, plain AS c
WHERE a.k = c.k AND b.k = c.k AND c.k > 'm'
