"""Adapters for other frameworks, one module for each. Only that module imports its framework."""
