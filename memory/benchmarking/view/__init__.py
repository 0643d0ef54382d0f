"""`membench view`: a local page over the folder of results. It only reads, and stores nothing."""
