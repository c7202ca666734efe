"""Agreement of survival methods before the first round: columns, units, times, scales and bins."""
