EXPLAIN SELECT a.k, b.id FROM src AS a JOIN more AS b ON a.k IS NOT DISTINCT FROM b.k AND a.v = b.v
