"""Two versions measured in lockstep: two processes alive, one of them working, a few calls a turn.

Case ─▶ pair of fresh processes ─▶ paired blocks ─▶ one log-ratio a pair ─▶ Evidence ─▶ verdicts
        baton.py decides whose turn it is; side.py is what each of the two runs
"""
