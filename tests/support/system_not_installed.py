"""The reason of skipped tests of systems that are installed apart; tests/conftest.py lists them."""

NOT_INSTALLED = "the system is not installed: "
