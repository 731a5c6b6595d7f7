EXPLAIN SELECT u, u || k AS both_of_them FROM (SELECT UUID() AS u, k FROM plain);
