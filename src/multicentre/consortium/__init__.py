"""The sites of a study, opened on an engine."""
