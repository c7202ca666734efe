"""Coded events of patients (diagnoses, procedures, drugs) and the sparse tensors that count how they occur together."""
