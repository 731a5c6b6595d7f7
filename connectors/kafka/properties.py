"""`properties.*` of a table, written for Kafka's Java client, translated to librdkafka's configuration.

Three kinds: what both clients call the same passes through; what librdkafka calls otherwise is renamed; what only
makes sense inside the Java client, or what this connector decides itself, is left out. What cannot be translated
(JKS key stores, unknown login modules) is refused with a hint instead of being ignored: a silently dropped security
setting is a hole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from connectors.errors import OptionError

PREFIX = "properties."

_RENAMED = {
    "buffer.memory": None,  # bytes to kilobytes, see `_buffer_memory`
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "client.id.prefix": "client.id",
    "sasl.kerberos.kinit.cmd": "sasl.kerberos.kinit.cmd",
    "ssl.cipher.suites": "ssl.cipher.suites",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

# What librdkafka's messages call an option that both clients know by the Java client's name as well.
_PREFERRED = {
    "queue.buffering.max.ms": "linger.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.kbytes": "buffer.memory",
    "sasl.mechanisms": "sasl.mechanism",
}

# Meaningless outside the Java client.
_LEFT_OUT = frozenset({
    "key.deserializer", "value.deserializer", "key.serializer", "value.serializer", "max.poll.records",
    "max.poll.interval.ms", "register.consumer.metrics", "register.producer.metrics", "metric.reporters",
    "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "interceptor.classes",
    "partitioner.class", "partition.assignment.strategy", "max.block.ms", "default.api.timeout.ms",
    "exclude.internal.topics", "allow.auto.create.topics", "internal.leave.group.on.close",
    "ssl.protocol", "ssl.enabled.protocols", "ssl.provider", "ssl.trustmanager.algorithm",
    "ssl.keymanager.algorithm", "ssl.secure.random.implementation", "client.dns.lookup",
})  # fmt: skip

# Decided by this connector from the table's other options or by its protocol.
OWNED = frozenset({
    "commit.offsets.on.checkpoint", "partition.discovery.interval.ms", "auto.offset.reset", "enable.auto.commit",
    "auto.commit.interval.ms", "enable.auto.offset.store", "enable.partition.eof", "transactional.id",
    "transaction.timeout.ms", "enable.idempotence", "group.protocol", "group.instance.id", "isolation.level",
    "enable.metrics.push", "partitioner",
})  # fmt: skip

_TRUSTSTORE = ("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type")
_KEYSTORE = ("ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type")
_HANDLED = frozenset({*_TRUSTSTORE, *_KEYSTORE, "sasl.jaas.config", "ssl.endpoint.identification.algorithm"})

_JAAS_MODULE = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_JAAS_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')

Client = dict[str, str]


def java_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The `properties.*` of a WITH clause without their prefix."""
    return {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}


def translate(properties: Mapping[str, str]) -> Client:
    """librdkafka configuration for Java client properties. Raises OptionError naming `properties.<name>`."""
    client: Client = {}
    for name, value in properties.items():
        if name in _LEFT_OUT or name in OWNED or name in _HANDLED:
            continue
        if name == "buffer.memory":
            client["queue.buffering.max.kbytes"] = str(max(1, _integer(name, value) // 1024))
        else:
            client[_RENAMED.get(name) or name] = value
    if "sasl.jaas.config" in properties:
        client.update(_jaas(properties["sasl.jaas.config"]))
    if "ssl.endpoint.identification.algorithm" in properties:
        algorithm = properties["ssl.endpoint.identification.algorithm"].strip().lower()
        client["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    client.update(_truststore(properties))
    client.update(_keystore(properties))
    return client


def as_written(message: str) -> str:
    """A message of librdkafka with the options called as in a WITH clause."""
    renamed = {theirs: ours for ours, theirs in _RENAMED.items() if theirs is not None} | _PREFERRED

    def option(match: re.Match[str]) -> str:
        return f"'{PREFIX}{renamed.get(match[2], match[2])}'"

    return re.sub(r"""(["`])([a-z]+(?:\.[a-z]+)+|acks|retries)\1""", option, message).strip()


def _integer(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise OptionError(f"'{PREFIX}{name}' must be a number, not '{value}'", option=PREFIX + name) from None


def _jaas(text: str) -> Client:
    module = _JAAS_MODULE.match(text)
    option = PREFIX + "sasl.jaas.config"
    if module is None:
        raise OptionError(
            f"'{option}' cannot be read",
            option=option,
            hint='Expected: org.apache.kafka.common.security.plain.PlainLoginModule required username="…" '
            'password="…";',
        )
    found = {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        for name, quoted, plain in _JAAS_OPTION.findall(text[module.end() :])
    }
    login = module.group(1).rsplit(".", 1)[-1]
    if login in ("PlainLoginModule", "ScramLoginModule"):
        missing = [name for name in ("username", "password") if name not in found]
        if missing:
            raise OptionError(f"'{option}' has no {' and no '.join(missing)}", option=option)
        return {"sasl.username": found["username"], "sasl.password": found["password"]}
    if login == "Krb5LoginModule":
        names = {"principal": "sasl.kerberos.principal", "keyTab": "sasl.kerberos.keytab"}
        return {names[name]: value for name, value in found.items() if name in names}
    raise OptionError(
        f"login module {login} of '{option}' is not supported",
        option=option,
        hint="Supported: PlainLoginModule, ScramLoginModule, Krb5LoginModule.",
    )


def _store_type(properties: Mapping[str, str], prefix: str) -> str:
    """PEM, PKCS12 or JKS (Java's default when neither the type nor the file's name says otherwise)."""
    given = properties.get(prefix + ".type")
    if given:
        return given.strip().upper()
    location = properties.get(prefix + ".location", "").lower()
    if location.endswith((".pem", ".crt", ".cer")):
        return "PEM"
    return "PKCS12" if location.endswith((".p12", ".pfx")) else "JKS"


def _truststore(properties: Mapping[str, str]) -> Client:
    location = properties.get("ssl.truststore.location")
    if location is None:
        return {}
    kind = _store_type(properties, "ssl.truststore")
    if kind == "PEM":
        return {"ssl.ca.location": location}
    option = PREFIX + "ssl.truststore.location"
    raise OptionError(
        f"'{option}' is a {kind} trust store; only PEM can be read",
        option=option,
        hint="Convert it: keytool -exportcert -rfc -keystore FILE -alias NAME > ca.pem, "
        "then set 'properties.ssl.truststore.type' = 'PEM' and the new location.",
    )


def _keystore(properties: Mapping[str, str]) -> Client:
    location = properties.get("ssl.keystore.location")
    if location is None:
        return {}
    kind = _store_type(properties, "ssl.keystore")
    if kind == "PKCS12":
        password = properties.get("ssl.keystore.password")
        return {"ssl.keystore.location": location} | ({"ssl.keystore.password": password} if password else {})
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    option = PREFIX + "ssl.keystore.location"
    raise OptionError(
        f"'{option}' is a {kind} key store; PKCS12 and PEM can be read",
        option=option,
        hint="Convert it: keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12, "
        "then set 'properties.ssl.keystore.type' = 'PKCS12' and the new location.",
    )
