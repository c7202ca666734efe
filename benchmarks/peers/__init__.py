"""Other packages that run as separate processes: scikit-survival (GPL), and the simulation of Flower."""
