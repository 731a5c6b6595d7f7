EXPLAIN SELECT m.k, c.v FROM src m JOIN timed_cdc FOR SYSTEM_TIME AS OF m.ts AS c ON m.v = c.id AND m.k = c.k
