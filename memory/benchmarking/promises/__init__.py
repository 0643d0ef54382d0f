"""What a memory promises, and how each promise is tried: checks against `Target`, for any system.

`suite.py` lists all checks and runs each in a process of its own. A check uses only the public methods of
`Target`, and has no special case for any system. docs/promises.md explains every promise to users.
"""
