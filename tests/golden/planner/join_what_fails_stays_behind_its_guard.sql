EXPLAIN SELECT a.k FROM src AS a JOIN more AS b ON a.k = b.k WHERE a.v <> b.v AND 10 / (a.v - 1) > 1
