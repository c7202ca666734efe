"""What a site's data look like to a method: views of the same patients, their schema, and how files become views."""

from multicentre.data.multiview import MultiViewData
from multicentre.data.readers import read_multiview, read_table
from multicentre.data.schema import MultiViewSchema, agree_schemas

__all__ = ["MultiViewData", "MultiViewSchema", "agree_schemas", "read_multiview", "read_table"]
