"""The URL of a database: split into what the driver needs, and shown without secrets.

Neither the password nor the address of the server appears in an error, a log or a result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

from psycopg import conninfo
from psycopg.errors import ProgrammingError

from memory.errors import InvalidConfig, short

DEFAULT_SCHEMA = "agentmemory"
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_PORTS = re.compile(r"[0-9,]*")
_SYSTEM_SCHEMAS = ("pg_", "information_schema")
_DEFAULTS = {
    "connect_timeout": "5",
    "application_name": "agentmemory",
    # A host that vanished without closing its connections is noticed after about ten seconds.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "client_encoding": "UTF8",
    "options": "",
}
_SECRET = ("password", "host", "hostaddr", "passfile", "sslpassword", "sslkey")


@dataclass(frozen=True, repr=False)
class Address:
    """Where a memory is: the driver's parameters, and the schema."""

    parameters: dict[str, str]
    schema: str

    def __repr__(self) -> str:
        return f"Address({self})"

    def __str__(self) -> str:
        """Name the database and the schema, without server, user and password."""
        name = self.parameters.get("dbname") or self.parameters.get("user") or "?"
        return f"PostgreSQL database {short(name)}, schema {short(self.schema)}"

    @property
    def quoted_schema(self) -> str:
        return f'"{self.schema}"'

    def hide(self, message: str) -> str:
        """Remove the secrets of this address from a message of the driver."""
        for name in _SECRET:
            for value in self.parameters.get(name, "").split(","):
                if len(value) > 2:
                    message = message.replace(value, "…").replace(quote(value, safe=""), "…")
        return re.sub(r"\(\d+(\.\d+){3}\)|\([0-9a-fA-F:]*:[0-9a-fA-F:]*\)", "(…)", message)


def parse(url: str) -> Address:
    """Return the address of a URL `postgresql://user:password@host:port/database?schema=name&…`.

    All parameters of libpq are allowed. Raises InvalidConfig without showing the URL."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        schemas = [value for name, value in query if name == "schema"]
        rest = "&".join(f"{quote(name)}={quote(value)}" for name, value in query if name != "schema")
        # urlunsplit would drop the empty host of "postgresql:///database".
        plain = f"{parts.scheme}://{parts.netloc}{parts.path}" + (f"?{rest}" if rest else "")
        parameters = {name: str(value) for name, value in conninfo.conninfo_to_dict(plain).items()}
        # An unescaped "/", "?" or "#" ends the server's part of the URL, even in the middle of a password.
        if "@" in parts.path or parts.fragment or not _PORTS.fullmatch(parameters.get("port", "")):
            raise ValueError
    except (ValueError, ProgrammingError):
        raise InvalidConfig(
            "the PostgreSQL URL can't be read: use postgresql://user:password@host:port/database, "
            "with %-escapes for special characters"
        ) from None
    schema = schemas[-1] if schemas else DEFAULT_SCHEMA
    if not _SCHEMA_NAME.fullmatch(schema) or schema.startswith(_SYSTEM_SCHEMAS):
        raise InvalidConfig(
            f"schema is {short(schema)}: use at most 63 of a-z, 0-9 and _, not starting with a digit or pg_"
        )
    defaults = {name: value for name, value in _DEFAULTS.items() if value}
    return Address(defaults | parameters, schema)
