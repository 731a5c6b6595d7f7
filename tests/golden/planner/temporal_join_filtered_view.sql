CREATE VIEW dear AS SELECT k AS name, rate * 2 AS twice FROM versioned_rates WHERE rate > 100 AND k <> 'x';
EXPLAIN SELECT s.k, d.twice FROM src s LEFT JOIN dear FOR SYSTEM_TIME AS OF s.ts AS d ON s.k = d.name WHERE s.v > 0
