EXPLAIN SELECT a.k, b.id FROM src AS a LEFT JOIN more AS b ON a.k = b.k AND a.k <> 'x' WHERE a.k > 'm'
