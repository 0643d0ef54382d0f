"""Load from several client processes, on this machine or on others."""
