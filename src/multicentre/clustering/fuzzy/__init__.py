"""Federated fuzzy clustering of patients at different sites (horizontal): FedMVFCM and FedMVFPC."""
