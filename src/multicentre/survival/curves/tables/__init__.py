"""What curves and tests share: patients by group, outcome and time, counted at the sites and summed over them."""
