EXPLAIN SELECT s.k, s.v, i.title, i.code FROM src s JOIN items FOR SYSTEM_TIME AS OF PROCTIME() AS i
ON s.v = i.id AND i.kind = 'book' AND i.price > s.v WHERE s.k <> 'x'
