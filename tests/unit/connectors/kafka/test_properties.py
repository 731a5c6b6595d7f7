"""Java client properties in librdkafka's words."""

from __future__ import annotations

import pytest

from connectors.durations import duration_ms, memory_bytes
from connectors.errors import OptionError
from connectors.kafka.properties import as_written, translate

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("java", "client"),
    [
        ({"bootstrap.servers": "a:1,b:2", "acks": "1"}, {"bootstrap.servers": "a:1,b:2", "acks": "1"}),
        ({"key.deserializer": "x", "max.poll.records": "5", "auto.offset.reset": "earliest"}, {}),
        ({"fetch.max.wait.ms": "7"}, {"fetch.wait.max.ms": "7"}),
        ({"max.request.size": "7"}, {"message.max.bytes": "7"}),
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
        ({"client.id.prefix": "me"}, {"client.id": "me"}),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'{PLAIN} required username="u" password="p\\"w;x";'},
            {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": 'p"w;x'},
        ),
        (
            {"sasl.jaas.config": f"{SCRAM} required\n  username=u\n  password=p;"},
            {"sasl.username": "u", "sasl.password": "p"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"}, {"ssl.endpoint.identification.algorithm": "https"}),
        ({"ssl.truststore.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
        ({"ssl.truststore.location": "/ca", "ssl.truststore.type": "pem"}, {"ssl.ca.location": "/ca"}),
        (
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x"},
        ),
        (
            {"ssl.keystore.location": "/me.pem", "ssl.key.password": "x"},
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem", "ssl.key.password": "x"},
        ),
    ],
)  # fmt: skip
def test_translation(java: dict[str, str], client: dict[str, str]) -> None:
    assert translate(java) == client


@pytest.mark.parametrize(
    ("java", "message"),
    [
        ({"ssl.truststore.location": "/t.jks"}, "JKS trust store"),
        ({"ssl.truststore.location": "/t.p12"}, "PKCS12 trust store"),
        ({"ssl.keystore.location": "/t"}, "JKS key store"),
        ({"sasl.jaas.config": "nonsense"}, "cannot be read"),
        ({"sasl.jaas.config": f'{PLAIN} required username="u";'}, "has no password"),
        ({"sasl.jaas.config": "com.example.OwnLoginModule required;"}, "OwnLoginModule"),
        ({"buffer.memory": "much"}, "must be a number"),
    ],
)
def test_what_cannot_be_translated_is_refused(java: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        translate(java)


def test_durations_and_sizes() -> None:
    assert [duration_ms(text) for text in ("5 min", "10s", "200 ms", "7", "1 d")] == [
        300_000,
        10_000,
        200,
        7,
        86_400_000,
    ]
    assert [memory_bytes(text) for text in ("64 mb", "1g", "7")] == [64 << 20, 1 << 30, 7]
    for bad in ("", "x", "5 parsecs", "-1 s"):
        with pytest.raises(ValueError, match="is not a"):
            duration_ms(bad)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            'Configuration property "queue.buffering.max.ms" value 9e9 is outside allowed range 0..900000\n',
            "Configuration property 'properties.linger.ms' value 9e9 is outside allowed range 0..900000",
        ),
        (
            "`message.timeout.ms` must be greater than `linger.ms`",
            "'properties.delivery.timeout.ms' must be greater than 'properties.linger.ms'",
        ),
        (
            'Invalid value "brr" for configuration property "compression.codec"',
            "Invalid value \"brr\" for configuration property 'properties.compression.type'",
        ),
        ('No such configuration property: "no.such"', "No such configuration property: 'properties.no.such'"),
        ('"fetch.wait.max.ms" is wrong', "'properties.fetch.max.wait.ms' is wrong"),
    ],
)
def test_messages_of_the_client_name_options_as_the_table_does(message: str, expected: str) -> None:
    assert as_written(message) == expected
