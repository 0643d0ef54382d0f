"""The commands of `membench`, one file each; heavy imports stay inside their functions."""
