"""The mathematics of the federated Cox model, as pure functions of arrays."""
