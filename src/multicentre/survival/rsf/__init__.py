"""FedRSF: random survival forest with log-rank splits from counts summed over the sites."""
