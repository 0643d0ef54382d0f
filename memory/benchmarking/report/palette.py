"""Colours of lines that people with any colour vision can distinguish, for plots and pages.

They are Okabe and Ito's colours; those too faint for a line on white are darker here. `style.css` has them
as `--series-1` and so on, with lighter ones for dark pages. A test checks that both are the same.
"""

from __future__ import annotations

COLOURS = ("#0072b2", "#d55e00", "#00805d", "#b0578d", "#9a6b00", "#4b4b8f", "#3a3f45")
