EXPLAIN SELECT a.id, b.v FROM more a LEFT JOIN more b ON a.id = b.id AND b.proc BETWEEN a.proc - INTERVAL '10' SECOND AND a.proc
