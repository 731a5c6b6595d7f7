SET 'table.exec.state.ttl' = '1 d';
EXPLAIN INSERT INTO shown
SELECT /*+ STATE_TTL('s' = '0 s') */ DISTINCT s.k, COUNT(*) FROM src AS s GROUP BY s.k;
