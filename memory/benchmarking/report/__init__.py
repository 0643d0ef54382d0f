"""Plots, pages and exports of results."""
