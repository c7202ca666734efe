"""The equations of DPFact as functions of arrays."""
