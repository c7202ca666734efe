"""Readers of the tables that hospitals and public databases export: one module a source."""

from multicentre.data.events.readers.base import PatientEvents
from multicentre.data.events.readers.sources import read_eicu, read_mimic3, read_omop, read_synpuf

__all__ = ["PatientEvents", "read_eicu", "read_mimic3", "read_omop", "read_synpuf"]
