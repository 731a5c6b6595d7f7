-- Calculation: conversion, time of day, and how often a letter occurs in a text.
SELECT auction, bidder, 0.908 * price AS price,
  CASE
    WHEN HOUR(`dateTime`) BETWEEN 8 AND 18 THEN 'dayTime'
    WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END AS time_of_day,
  `dateTime`, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS letters
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
