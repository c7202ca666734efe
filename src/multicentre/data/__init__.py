"""What a site's data look like to a method (views of its patients, counts of their events), and how files are read."""

from multicentre.data.events.tensor import EventTensor
from multicentre.data.multiview import MultiViewData
from multicentre.data.readers import read_multiview, read_table
from multicentre.data.schema import MultiViewSchema, agree_schemas

__all__ = ["EventTensor", "MultiViewData", "MultiViewSchema", "agree_schemas", "read_multiview", "read_table"]
