EXPLAIN SELECT m.id, b.name FROM more m LEFT JOIN books FOR SYSTEM_TIME AS OF m.proc AS b ON m.id = b.book AND b.price > 1
