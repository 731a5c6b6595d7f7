SELECT lot, COUNT(*) AS n, SUM(price) AS total FROM prices GROUP BY lot
