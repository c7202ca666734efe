"""Readers of coded events from exports of hospitals and public databases."""

from multicentre.data.events.readers.base import PatientEvents
from multicentre.data.events.readers.sources import read_eicu, read_mimic3, read_omop, read_synpuf

__all__ = ["PatientEvents", "read_eicu", "read_mimic3", "read_omop", "read_synpuf"]
