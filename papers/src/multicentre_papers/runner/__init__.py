"""What reproductions of different papers share: tables, verdicts, files and news of progress."""
