"""Colours of lines, for plots and pages. People with any colour vision can distinguish them.

The first seven are Okabe and Ito's colours. The others are for many targets: with them, only the shape of
the marker is sure to differ. Colours that are too faint for a line on white are darker here.
`style.css` has the same colours as `--series-1` and so on, and lighter ones for dark pages. A test checks
that this list and `style.css` are the same.
"""

from __future__ import annotations

COLOURS = (
    "#0072b2", "#d55e00", "#00805d", "#b0578d", "#9a6b00", "#4b4b8f", "#3a3f45",
    "#c2185b", "#5a7d00", "#00808c", "#8a3fc0", "#7a5548",
)  # fmt: skip
