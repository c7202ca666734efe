"""FedRSF: a random survival forest whose log-rank splits are found from counts summed over the sites."""
