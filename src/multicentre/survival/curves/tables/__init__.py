"""Tables of patients by group, outcome and time, counted at the sites and summed over them."""
