"""Coded events of patients (diagnoses, procedures, drugs) and sparse tensors of co-occurrence counts."""
