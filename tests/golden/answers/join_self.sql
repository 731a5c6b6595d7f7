SELECT a.id, b.id AS other FROM users AS a JOIN users AS b ON a.city = b.city AND a.id < b.id
