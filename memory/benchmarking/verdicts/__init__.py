"""Decide whether code became slower: from two sets of measurements to a verdict for each metric.

rounds or pairs ─▶ Evidence ─▶ decide ─▶ MetricVerdict ─▶ Comparison ─▶ text, JSON, markdown, JUnit, GitHub
"""
