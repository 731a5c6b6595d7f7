SELECT b.auction, b.price, u.name FROM bids AS b RIGHT JOIN users AS u ON b.bidder = u.name AND b.price > 10
