"""Missing values: counting, filling, indicators and complete-case analysis."""
