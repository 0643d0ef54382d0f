"""The memory on a PostgreSQL server. Needs the extra `postgres`; imported only for a URL of a server."""
