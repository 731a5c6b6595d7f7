-- Row kinds pass through, so −U is needed: an update may leave fewer elements. Key and ordinality are an upsert key.
EXPLAIN INSERT INTO pairs
SELECT k, x FROM (SELECT k, COUNT(*) AS n FROM src GROUP BY k) CROSS JOIN UNNEST(ARRAY[n, n + 1]) WITH ORDINALITY AS t (x, o);
