"""`membench view`: local web pages of the results. This package reads results and writes nothing."""
