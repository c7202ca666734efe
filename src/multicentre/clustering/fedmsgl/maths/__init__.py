"""The equations of FedMSGL."""
