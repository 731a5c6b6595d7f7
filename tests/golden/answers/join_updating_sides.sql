SELECT u.id, u.city, p.symbol, p.lot FROM users AS u LEFT JOIN prices AS p ON u.id * 100 = p.lot
