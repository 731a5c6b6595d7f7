SELECT b.auction, u.city, p.price, b.price AS bid FROM bids AS b, users AS u, prices AS p
WHERE b.bidder = u.name AND p.lot = 100 * u.id AND b.price > p.price
