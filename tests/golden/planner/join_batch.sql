SET 'execution.runtime-mode' = 'batch';
EXPLAIN INSERT INTO appended SELECT a.k, b.v FROM plain AS a LEFT JOIN plain AS b ON a.v = b.v AND b.f > 1
