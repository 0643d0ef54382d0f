"""Did it get slower? What decides, from two sets of measurements to one verdict a metric.

rounds or pairs ─▶ Evidence ─▶ decide ─▶ MetricVerdict ─▶ Comparison ─▶ text, JSON, markdown, JUnit, GitHub
"""
