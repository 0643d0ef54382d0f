"""`membench view`: local web pages of the results. It reads the results and writes nothing."""
