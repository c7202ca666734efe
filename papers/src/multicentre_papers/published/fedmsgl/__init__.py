"""FedMSGL as its authors' code runs, and as the paper prints it."""
