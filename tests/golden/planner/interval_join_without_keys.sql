EXPLAIN SELECT a.k, b.v FROM src a, src b WHERE b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND
