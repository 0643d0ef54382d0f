"""Adapters for other frameworks. Each framework has one module, and only that module imports it."""
