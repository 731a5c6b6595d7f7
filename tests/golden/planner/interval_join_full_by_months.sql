EXPLAIN SELECT a.k, b.k AS other FROM src a FULL JOIN src b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '1' MONTH AND a.ts
