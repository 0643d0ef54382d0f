"""JSON content helpers of the memory package, wherever the revision under test keeps them.

`membench ab` measures older revisions of `memory` with the current benchmark. Version 0.1 had these
functions in `memory.content`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory._base.content import decode_body, encode_body, leaves_of
else:
    try:
        from memory._base.content import decode_body, encode_body, leaves_of
    except ModuleNotFoundError:
        from memory.content import decode_body, encode_body, leaves_of

__all__ = ["decode_body", "encode_body", "leaves_of"]
