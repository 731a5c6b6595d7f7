SELECT b.auction, b.bidder, b.price, b.channel, b.url, b."dateTime", b.extra,
  a."itemName", a.description, a."initialBid", a.reserve, a."dateTime", a.expires, a.seller, a.category, a.extra
FROM (SELECT * FROM auction WHERE category = 10) a, bid b WHERE b.auction = a.id
