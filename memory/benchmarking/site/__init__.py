"""A static site of bundles: any web server can serve it."""
