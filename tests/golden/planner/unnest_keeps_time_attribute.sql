-- Event time goes through UNNEST: a window can stand above.
EXPLAIN SELECT window_start, word, COUNT(*) FROM TABLE(TUMBLE(
  TABLE (SELECT ts, word FROM src, UNNEST(ARRAY[k, note]) AS t (word)), DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, word;
