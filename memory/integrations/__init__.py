"""The memory inside other frameworks, one module each; what they need is imported only there."""
