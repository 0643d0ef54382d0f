"""Bundles: runs in one file that a stranger can check, with everything that their figures come from."""
