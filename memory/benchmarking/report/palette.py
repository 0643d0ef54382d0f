"""Colours that people with any colour vision can tell apart, the same on paper and on pages.

Okabe and Ito's, with those that are too faint for a line on white made darker. `style.css` has them as
`--series-1` and so on, with lighter ones for dark pages; a test keeps the two together.
"""

from __future__ import annotations

COLOURS = ("#0072b2", "#d55e00", "#00805d", "#b0578d", "#9a6b00", "#4b4b8f", "#3a3f45")
