"""Measuring: clocks, samples, resources, and the statistics over rounds."""
