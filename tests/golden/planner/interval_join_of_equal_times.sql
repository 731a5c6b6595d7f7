EXPLAIN SELECT a.k, b.v FROM src a JOIN src b ON a.ts = b.ts + INTERVAL '3' SECOND
