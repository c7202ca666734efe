"""Local web application: pages on studies, approvals, runs, ledgers and budgets of a folder.

The pages contain no rules: they display and call the functions that the commands use.
"""
