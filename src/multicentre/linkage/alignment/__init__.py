"""The same patients at several sites, brought into one order that tells nobody who they are."""

from multicentre.linkage.alignment.alignment import Alignment, align, find_places

__all__ = ["Alignment", "align", "find_places"]
