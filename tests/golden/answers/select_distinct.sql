SELECT DISTINCT channel, auction > 2 AS high FROM bids
