"""Table 1: variables of all patients and of groups, from sums over sites."""
