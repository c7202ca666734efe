"""Tables, verdicts, files and progress messages that all reproductions share."""
