SELECT a.id, a."itemName", a.seller, a.category, a."dateTime", a.expires,
  arg_max(b.bidder, (b.price, -epoch_ms(b."dateTime"::TIMESTAMP))),
  max(b.price),
  arg_max(b."dateTime", (b.price, -epoch_ms(b."dateTime"::TIMESTAMP)))
FROM auction a JOIN bid b ON b.auction = a.id AND b."dateTime" >= a."dateTime" AND b."dateTime" <= a.expires
GROUP BY ALL
