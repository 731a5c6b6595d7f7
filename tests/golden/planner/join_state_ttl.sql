SET 'table.exec.state.ttl' = '1 h';
EXPLAIN SELECT a.k, b.id FROM src AS a JOIN more AS b ON a.k = b.k
