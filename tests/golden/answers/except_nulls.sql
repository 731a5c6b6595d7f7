SELECT bidder FROM bids EXCEPT SELECT name FROM users WHERE age > 40
