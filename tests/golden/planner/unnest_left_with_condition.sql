-- A row without an element that passes ON is kept; the computed collection is a column of its own until then.
EXPLAIN SELECT k, x FROM plain LEFT JOIN UNNEST(ARRAY[v, v + 1]) AS t (x) ON x > 3 AND k = 'a';
