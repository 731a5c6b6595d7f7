EXPLAIN SELECT k, v, seen FROM upserts;
