"""Descriptive statistics over several sites."""
