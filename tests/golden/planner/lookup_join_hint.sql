SET 'parallelism.default' = '4';
EXPLAIN SELECT /*+ LOOKUP('table' = 'i', 'async' = 'true', 'capacity' = '8', 'shuffle' = 'true',
  'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay', 'fixed-delay' = '1 s', 'max-attempts' = '3') */
m.id, i.title FROM more m JOIN items FOR SYSTEM_TIME AS OF m.proc AS i ON CAST(m.v AS INT) = i.id
