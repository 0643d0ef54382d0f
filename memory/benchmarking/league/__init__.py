"""The league: the same suite on many memory systems, and a page that says which one fits whom."""
