"""Readers of the tables that hospitals and public databases export: one module a source."""

from multicentre.data.events.readers.base import PatientEvents
from multicentre.data.events.readers.eicu import read_eicu
from multicentre.data.events.readers.mimic3 import read_mimic3
from multicentre.data.events.readers.omop import read_omop
from multicentre.data.events.readers.synpuf import read_synpuf

__all__ = ["PatientEvents", "read_eicu", "read_mimic3", "read_omop", "read_synpuf"]
