"""What every survival method settles before its first round: columns, units, times, scales and bins."""
