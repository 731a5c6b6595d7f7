EXPLAIN SELECT id FROM cdc WHERE EXISTS (
  SELECT 1 FROM src WHERE src.k = cdc.k AND EXISTS (SELECT 1 FROM more WHERE more.id = cdc.id AND more.v = src.v))
