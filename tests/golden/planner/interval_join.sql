EXPLAIN SELECT a.k, a.v, b.v AS w, b.ts FROM src a JOIN src b ON a.k = b.k AND b.ts > a.ts - INTERVAL '5' SECOND AND b.ts <= a.ts + INTERVAL '1' HOUR AND b.v <> a.v
