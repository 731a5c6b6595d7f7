SELECT auction, bidder, price, channel,
  string_split(url, '/')[4], string_split(url, '/')[5], string_split(url, '/')[6]
FROM bid
