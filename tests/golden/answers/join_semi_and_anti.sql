SELECT u.id, u.name FROM users AS u
WHERE u.name IN (SELECT bidder FROM bids WHERE price > 9) AND NOT EXISTS (SELECT 1 FROM prices AS p WHERE p.lot = 100 * u.id)
