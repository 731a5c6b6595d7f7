-- The collection itself is not repeated per element: nobody reads it above; the filter on v goes below.
EXPLAIN SELECT k, tag, o FROM plain CROSS JOIN UNNEST(tags) WITH ORDINALITY AS t (tag, o) WHERE v > 1 AND tag <> 'x';
