"""Tests whether a target keeps the promises of targets/base.py: `membench targets check`."""
