-- Local items: who sells in category 10 and lives in Oregon, Idaho or California. A join of two growing tables.
SELECT p.name, p.city, p.state, a.id
FROM auction AS a JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
