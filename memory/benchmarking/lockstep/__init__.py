"""Comparing two versions in lockstep: two processes take turns of a few calls; one works, one waits.

Case ─▶ pair of fresh processes ─▶ paired blocks ─▶ one log-ratio a pair ─▶ Evidence ─▶ verdicts
        coordinator.py decides which side runs; side_process.py is the program of each side
"""
