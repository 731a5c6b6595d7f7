"""Dates, times, time zones and calendar functions."""

from __future__ import annotations

from tests.truths.model import Group

_ZONES = ("UTC", "Europe/Berlin", "America/New_York")
_UNITS = (
    "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "DECADE", "CENTURY", "MILLENNIUM",
    "DOW", "DOY", "ISODOW", "ISOYEAR", "EPOCH", "MILLISECOND", "MICROSECOND", "NANOSECOND",
)
_FLOORS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "DECADE", "CENTURY",
           "MILLENNIUM", "MILLISECOND")
_SPANS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")

_STAMPS: list[list[object]] = [
    ["2020-01-01T00:00:00", "2020-01-01T00:00:00.123456", "2020-01-01", "00:00:00"],
    ["2020-02-29T23:59:59.999", "2020-02-29T23:59:59.999999", "2020-02-29", "23:59:59"],
    ["1969-12-31T23:59:59.999", "1969-12-31T23:59:59.999999", "1969-12-31", "12:34:56"],
    ["1970-01-01T00:00:00", "1970-01-01T00:00:00", "1970-01-01", "01:02:03"],
    ["1900-03-01T12:00:00.001", "1900-03-01T12:00:00.000001", "1900-03-01", "06:00:00"],
    ["0001-01-01T00:00:00", "0001-01-01T00:00:00", "0001-01-01", "00:00:01"],
    ["2000-12-31T12:30:45.678", "2000-12-31T12:30:45.678901", "2000-12-31", "12:30:45"],
    ["2001-01-01T00:00:00.500", "2001-01-01T00:00:00.500000", "2001-01-01", "11:59:59"],
    ["2021-01-03T10:20:30", "2021-01-03T10:20:30", "2021-01-03", "10:20:30"],
    ["2024-12-30T01:01:01", "2024-12-30T01:01:01", "2024-12-30", "13:00:00"],
    ["9999-12-31T23:59:59.999", "9999-12-31T23:59:59.999999", "9999-12-31", "23:59:59"],
    ["2023-03-26T02:30:00", "2023-03-26T02:30:00", "2023-03-26", "02:30:00"],
    [None, None, None, None],
]

_INSTANTS: list[list[object]] = [
    ["2023-03-26T00:59:59.999Z", "2023-03-26T02:30:00"],
    ["2023-03-26T01:00:00Z", "2023-03-26T03:00:00"],
    ["2023-10-29T00:30:00Z", "2023-10-29T02:30:00"],
    ["2023-10-29T01:30:00Z", "2023-10-29T02:59:59.999"],
    ["2023-03-12T06:59:59Z", "2023-03-12T02:30:00"],
    ["2023-11-05T05:30:00Z", "2023-11-05T01:30:00"],
    ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00"],
    ["1969-12-31T23:59:59.001Z", "1969-12-31T23:59:59.001"],
    ["2020-12-31T23:30:00Z", "2020-12-31T23:30:00"],
    ["1893-04-01T00:00:00Z", "1893-04-01T00:00:00"],
    [None, None],
]

_PATTERNS = (
    "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd", "yyyyMMdd", "HH:mm", "HH:mm:ss.SSS", "yy/M/d", "MMM d, yyyy", "MMMM",
    "EEE", "EEEE", "hh:mm a", "h", "D", "DDD", "Q", "e", "w", "YYYY", "u", "G", "S", "SS", "SSSSSS", "k", "K",
    "''yyyy''", "'T'HH", "yyyy-MM-dd''T''HH:mm:ss", "A", "n", "N", "", "yyyy年MM月", "E", "bad pattern", "L", "c",
    "yyyyy", "y", "uuuu", "MMMMM", "XXX",
)

_TIMESTAMP_TEXTS: list[list[object]] = [
    ["2020-01-01 12:34:56"], ["2020-01-01"], ["2020-01-01 12:34"], ["2020-01-01T12:34:56"],
    ["2020-01-01 12:34:56.123"], ["2020-01-01 12:34:56.123456789"], ["2020-1-1 1:2:3"], ["2020-02-30 00:00:00"],
    ["2020-13-01 00:00:00"], ["2020-01-01 24:00:00"], ["2020-01-01 25:00:00"], ["abc"], [""],
    [" 2020-01-01 12:34:56 "], ["20200101"], ["01/02/2020"], ["2020-01-01 12:34:56Z"], ["2020-01-01 12:34:56+01:00"],
    ["1969-12-31 23:59:59"], ["0001-01-01 00:00:00"], ["9999-12-31 23:59:59"], ["12020-01-01 00:00:00"],
    ["2020-01-01 12"], ["2023-03-26 02:30:00"], ["2023-10-29 02:30:00"], ["Jan 5, 2020"], ["2020-01-01 12:34:56 PM"],
    [None],
]

GROUPS = [
    Group(
        name="extract, floor, ceil",
        columns={"ts": "TIMESTAMP(3)", "t6": "TIMESTAMP(6)", "dt": "DATE", "tm": "TIME"},
        rows=_STAMPS,
        cases=[
            *[f"EXTRACT({unit} FROM {c})" for unit in _UNITS for c in ("ts", "t6", "dt", "tm")],
            *[f"FLOOR({c} TO {unit})" for unit in _FLOORS for c in ("ts", "dt", "tm")],
            *[f"CEIL({c} TO {unit})" for unit in _FLOORS for c in ("ts", "dt", "tm")],
            "FLOOR(t6 TO SECOND)", "CEIL(t6 TO SECOND)", "FLOOR(t6 TO MONTH)", "CEIL(t6 TO YEAR)",
            "FLOOR(t6 TO MILLISECOND)",
            "YEAR(ts)", "MONTH(dt)", "QUARTER(dt)", "WEEK(dt)", "DAYOFYEAR(dt)", "DAYOFMONTH(dt)", "DAYOFWEEK(dt)",
            "HOUR(ts)", "MINUTE(ts)", "SECOND(ts)",
        ],
    ),
    Group(
        name="timestampadd",
        columns={"ts": "TIMESTAMP(3)", "t6": "TIMESTAMP(6)", "dt": "DATE", "tm": "TIME", "n": "INT"},
        rows=[
            ["2020-01-31T10:00:00", "2020-01-31T10:00:00.123456", "2020-01-31", "10:00:00", 1],
            ["2020-02-29T00:00:00.001", "2020-02-29T00:00:00.000001", "2020-02-29", "23:59:59", -12],
            ["2019-12-31T23:59:59.999", "2019-12-31T23:59:59.999999", "2019-12-31", "00:00:00", 13],
            ["1970-01-01T00:00:00", "1970-01-01T00:00:00", "1970-01-01", "12:00:00", -1],
            ["2021-05-31T12:00:00", "2021-05-31T12:00:00", "2021-05-31", "12:34:56", 100],
            ["1969-12-31T23:59:59.500", "1969-12-31T23:59:59.500000", "1969-12-31", "01:00:00", None],
            [None, None, None, None, 1],
        ],
        cases=[
            *[f"TIMESTAMPADD({unit}, {n}, {c})" for unit in _SPANS for n in ("1", "-1", "n")
              for c in ("ts", "dt")],
            *[f"TIMESTAMPADD({unit}, n, t6)" for unit in _SPANS],
            *[f"TIMESTAMPADD({unit}, 1, tm)" for unit in ("SECOND", "MINUTE", "HOUR")],
            "ts + INTERVAL '1' DAY", "ts - INTERVAL '1' MONTH", "ts + INTERVAL '1-2' YEAR TO MONTH",
            "ts + INTERVAL '1 02:03:04.567' DAY TO SECOND", "ts - INTERVAL '5' SECOND", "ts - INTERVAL '0.5' SECOND",
            "dt + INTERVAL '1' DAY", "dt - INTERVAL '1' MONTH", "dt + INTERVAL '1' HOUR", "tm + INTERVAL '1' HOUR",
            "tm - INTERVAL '13' HOUR", "t6 + INTERVAL '1' SECOND", "t6 - INTERVAL '3' MONTH",
            "ts - INTERVAL '100' MINUTE", "INTERVAL '1' DAY + ts", "ts + INTERVAL '90' MINUTE * 2",
            "ts + n * INTERVAL '1' HOUR", "ts + INTERVAL '1' YEAR", "ts + INTERVAL '1' QUARTER",
            "ts + INTERVAL '1' WEEK", "INTERVAL '1' DAY", "INTERVAL '1' MONTH", "INTERVAL '3' HOUR",
        ],
    ),
    Group(
        name="timestampdiff",
        columns={"a": "TIMESTAMP(3)", "b": "TIMESTAMP(3)", "x": "DATE", "y": "DATE", "u": "TIMESTAMP(6)"},
        rows=[
            ["2020-01-31T10:00:00", "2020-02-29T10:00:00", "2020-01-31", "2020-02-29", "2020-01-31T10:00:00.000001"],
            ["2020-02-29T00:00:00", "2021-02-28T23:59:59.999", "2020-02-29", "2021-02-28", "2020-02-29T00:00:00"],
            ["2020-03-31T00:00:00", "2020-02-29T00:00:00", "2020-03-31", "2020-02-29", "2020-03-30T23:59:59.999999"],
            ["1970-01-01T00:00:00", "1969-12-31T23:59:59.999", "1970-01-01", "1969-12-31", "1969-12-31T00:00:00"],
            ["2020-01-01T12:00:00", "2020-01-02T11:59:59.999", "2020-01-01", "2020-01-02", "2020-01-01T12:00:00"],
            ["2020-12-31T23:59:59.999", "2021-01-01T00:00:00", "2020-12-31", "2021-01-01", "2019-01-01T00:00:00"],
            ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999", "0001-01-01", "9999-12-31", "0001-01-01T00:00:00"],
            ["2020-05-15T10:30:00", "2020-05-15T10:30:00", "2020-05-15", "2020-05-15", "2020-05-15T10:30:00"],
            [None, "2020-01-01T00:00:00", None, "2020-01-01", None],
        ],
        cases=[
            *[f"TIMESTAMPDIFF({unit}, {pair})" for unit in _SPANS for pair in ("a, b", "b, a", "x, y", "a, y",
                                                                             "x, b", "a, u")],
            "a < b", "a = b", "x < y", "a <= u", "x = y", "a BETWEEN b AND u", "GREATEST(a, b)", "LEAST(x, y)",
            "GREATEST(a, u)", "COALESCE(a, b)", "COALESCE(a, u)", "NULLIF(a, b)", "a IN (b, u)", "a = x",
            "CASE WHEN a < b THEN a ELSE u END", "a IS DISTINCT FROM b", "a = '2020-01-31 10:00:00'", "x < '2020-06-01'",
            "a - b", "TIMESTAMPDIFF(SECOND, a, TIMESTAMP '2020-01-01 00:00:00')",
        ],
    ),
    Group(
        name="date_format",
        columns={"ts": "TIMESTAMP(3)", "s": "STRING", "p": "STRING"},
        rows=[
            ["2020-01-02T03:04:05.006", "2020-01-02 03:04:05.006", "yyyy"],
            ["2020-12-31T23:59:59.999", "2020-12-31 23:59:59", "MM"],
            ["1969-07-20T20:17:40", "1969-07-20", "dd.MM.yyyy"],
            ["0099-05-05T12:00:00", "bad", "HH"],
            [None, None, None],
        ],
        cases=[
            *["DATE_FORMAT(ts, '{}')".format(pattern.replace("''", "\0").replace("'", "''").replace("\0", "''''"))
              for pattern in _PATTERNS],
            "DATE_FORMAT(s, 'yyyy/MM/dd')", "DATE_FORMAT(s, 'HH:mm')", "DATE_FORMAT(ts, p)",
            "DATE_FORMAT(ts, CAST(NULL AS STRING))",
        ],
    ),
    Group(
        name="to_timestamp",
        columns={"s": "STRING"},
        rows=_TIMESTAMP_TEXTS,
        cases=[
            "TO_TIMESTAMP(s)", "TO_TIMESTAMP(s, 'yyyy-MM-dd HH:mm:ss')", "TO_TIMESTAMP(s, 'yyyy-MM-dd')",
            "TO_TIMESTAMP(s, 'yyyyMMdd')", "TO_TIMESTAMP(s, 'MM/dd/yyyy')", "TO_TIMESTAMP(s, 'yyyy-MM-dd HH:mm:ss.SSS')",
            "TO_TIMESTAMP(s, 'yyyy-MM-dd''T''HH:mm:ss')", "TO_TIMESTAMP(s, 'MMM d, yyyy')", "TO_TIMESTAMP(s, 'bogus')",
            "TO_TIMESTAMP(s, 'yyyy-MM-dd HH:mm')", "TO_TIMESTAMP(s, 'yyyy')", "TO_TIMESTAMP(s, '')",
            "TO_TIMESTAMP(s, 'yyyy-M-d H:m:s')", "TO_TIMESTAMP(s, 'yyyy-MM-dd HH:mm:ss a')",
            "TO_TIMESTAMP(s, 'yyyy-MM-dd HH:mm:ss.SSSSSSSSS')", "TO_TIMESTAMP(s, CAST(NULL AS STRING))",
            "TO_DATE(s)", "TO_DATE(s, 'yyyy-MM-dd')",
        ],
    ),
    Group(
        name="current time",
        columns={"i": "INT NOT NULL"},
        rows=[[1]],
        cases=[],
        type_only=[
            "CURRENT_TIMESTAMP", "NOW()", "PROCTIME()", "UNIX_TIMESTAMP()", "UUID()", "LOCALTIMESTAMP", "CURRENT_DATE",
            "CURRENT_TIME", "LOCALTIME", "CURRENT_ROW_TIMESTAMP()", "CAST(CURRENT_TIMESTAMP AS STRING)",
            "CAST(PROCTIME() AS TIMESTAMP(3))", "RAND()",
        ],
    ),
    *[
        Group(
            name=f"zone {zone}",
            columns={"z": "TIMESTAMP_LTZ(3)", "ts": "TIMESTAMP(3)"},
            rows=_INSTANTS,
            time_zone=zone,
            cases=[
                "CAST(z AS STRING)", "CAST(z AS TIMESTAMP(3))", "CAST(z AS TIMESTAMP(0))", "CAST(z AS DATE)",
                "CAST(z AS TIME)", "CAST(ts AS TIMESTAMP_LTZ(3))", "CAST(ts AS TIMESTAMP_LTZ(0))",
                "CAST(ts AS TIMESTAMP_LTZ(6))", "CAST(CAST(ts AS DATE) AS TIMESTAMP_LTZ(3))", "CAST(ts AS STRING)",
                "CAST(CAST(ts AS STRING) AS TIMESTAMP_LTZ(3))", "TRY_CAST('2023-03-26 02:30:00' AS TIMESTAMP_LTZ(3))",
                "z = ts", "z < ts", "CAST(z AS TIMESTAMP(3)) = ts", "z IN (z)", "COALESCE(z, CAST(ts AS TIMESTAMP_LTZ(3)))",
                *[f"EXTRACT({unit} FROM z)" for unit in _UNITS],
                *[f"FLOOR(z TO {unit})" for unit in _FLOORS],
                *[f"CEIL(z TO {unit})" for unit in _FLOORS],
                "DATE_FORMAT(z, 'yyyy-MM-dd HH:mm:ss')", "DATE_FORMAT(z, 'HH:mm:ss.SSS')", "DATE_FORMAT(z, 'EEE XXX')",
                *[f"TIMESTAMPADD({unit}, 1, z)" for unit in _SPANS],
                "z + INTERVAL '1' DAY", "z - INTERVAL '1' MONTH", "z - INTERVAL '5' SECOND",
                *[f"TIMESTAMPDIFF({unit}, z, ts)" for unit in _SPANS],
                *[f"TIMESTAMPDIFF({unit}, z, TO_TIMESTAMP_LTZ(0, 3))" for unit in _SPANS],
                "GREATEST(z, CAST(ts AS TIMESTAMP_LTZ(3)))", "CASE WHEN z IS NULL THEN NULL ELSE z END", "NULLIF(z, z)",
                "HOUR(z)", "YEAR(z)",
            ],
        )
        for zone in _ZONES
    ],
    *[
        Group(
            name=f"epoch in {zone}",
            columns={"n": "BIGINT", "i": "INT", "s": "STRING", "d": "DOUBLE"},
            rows=[
                [0, 0, "1970-01-01 00:00:00", "0.0"],
                [1679792400, 1, "2023-03-26 02:30:00", "1.5"],
                [1698539400, -1, "2023-10-29 02:30:00", "-0.5"],
                [-1, 86399, "1969-12-31 23:59:59", "1679792400.123"],
                [1700000000123, 1000000000, "2023-11-05 01:30:00", "1700000000123.9"],
                [253402300799, 2147483647, "bad", "253402300799.0"],
                [-62135596800, -2147483648, "2020-01-01", "-1.0"],
                [9223372036854775807, 7, "2020-01-01 12:34:56.789", "NaN"],
                [None, None, None, None],
            ],
            time_zone=zone,
            cases=[
                "TO_TIMESTAMP_LTZ(n, 0)", "TO_TIMESTAMP_LTZ(n, 3)", "TO_TIMESTAMP_LTZ(i, 0)", "TO_TIMESTAMP_LTZ(i, 3)",
                "TO_TIMESTAMP_LTZ(n)", "TO_TIMESTAMP_LTZ(d, 0)", "TO_TIMESTAMP_LTZ(d, 3)", "TO_TIMESTAMP_LTZ(n, 6)",
                "TO_TIMESTAMP_LTZ(n, 9)", "TO_TIMESTAMP_LTZ(s)", "TO_TIMESTAMP_LTZ(s, 'yyyy-MM-dd HH:mm:ss')",
                "TO_TIMESTAMP_LTZ(s, 'yyyy-MM-dd HH:mm:ss', 'Asia/Tokyo')", "TO_TIMESTAMP_LTZ(s, 'yyyy-MM-dd')",
                "FROM_UNIXTIME(n)", "FROM_UNIXTIME(i)", "FROM_UNIXTIME(n, 'yyyy-MM-dd')", "FROM_UNIXTIME(i, 'HH:mm:ss')",
                "FROM_UNIXTIME(i, 'yyyy/MM/dd HH:mm:ss.SSS')", "UNIX_TIMESTAMP(s)", "UNIX_TIMESTAMP(s, 'yyyy-MM-dd')",
                "UNIX_TIMESTAMP(s, 'yyyy-MM-dd HH:mm:ss')", "FROM_UNIXTIME(UNIX_TIMESTAMP(s))",
                "UNIX_TIMESTAMP(s, 'yyyy-MM-dd HH:mm:ss z')", "FROM_UNIXTIME(i, 'bogus')", "CAST(s AS TIMESTAMP_LTZ(3))",
                "TRY_CAST(s AS TIMESTAMP_LTZ(3))", "TRY_CAST(s AS TIMESTAMP(3))", "TO_TIMESTAMP(s)",
            ],
        )
        for zone in _ZONES
    ],
]
