SET 'parallelism.default' = '4';
EXPLAIN INSERT INTO totals /*+ OPTIONS('sink.slot-sharing-group' = 'out') */
SELECT k, SUM(v) FROM src /*+ OPTIONS('scan.slot-sharing-group' = 'in') */ WHERE v > 0 GROUP BY k;
