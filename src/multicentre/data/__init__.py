"""Containers for one site's data (views, event counts, survival times, tables) and readers of files."""

from multicentre.data.both import SurvivalAndTable
from multicentre.data.concatenate import merge_sites
from multicentre.data.events.columns import SYSTEMS, CodesReadAsNumbers
from multicentre.data.events.readers import PatientEvents, read_eicu, read_mimic3, read_omop, read_synpuf
from multicentre.data.events.rollup import icd9_codes, roll_up, roll_up_to_prefix, titles_of
from multicentre.data.events.tensor import EventTensor
from multicentre.data.identifiers import Identifiers, IdentifiersReadAsNumbers
from multicentre.data.multiview import MultiViewData
from multicentre.data.readers import read_multiview, read_table
from multicentre.data.schema import MultiViewSchema, agree_schemas
from multicentre.data.screening import DataWarning
from multicentre.data.survival import SurvivalData
from multicentre.data.tabledata import TableData

__all__ = [
    "SYSTEMS",
    "CodesReadAsNumbers",
    "DataWarning",
    "EventTensor",
    "Identifiers",
    "IdentifiersReadAsNumbers",
    "MultiViewData",
    "MultiViewSchema",
    "PatientEvents",
    "SurvivalAndTable",
    "SurvivalData",
    "TableData",
    "agree_schemas",
    "icd9_codes",
    "merge_sites",
    "read_eicu",
    "read_mimic3",
    "read_multiview",
    "read_omop",
    "read_synpuf",
    "read_table",
    "roll_up",
    "roll_up_to_prefix",
    "titles_of",
]
