SELECT bidder FROM bids EXCEPT ALL SELECT name FROM users
