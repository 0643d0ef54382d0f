"""Executors run rounds: they take jobs and yield outcomes, one process a job."""
