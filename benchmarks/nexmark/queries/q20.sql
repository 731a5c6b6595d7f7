-- Expanded bids: the bids on auctions of category 10, with what is sold.
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.`dateTime` AS bid_time, b.extra AS bid_extra,
  a.itemName, a.description, a.initialBid, a.reserve, a.`dateTime`, a.expires, a.seller, a.category, a.extra
FROM bid AS b JOIN auction AS a ON b.auction = a.id
WHERE a.category = 10
