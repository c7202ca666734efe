"""Alignment of the same patients at several sites by keyed pseudonyms, without revealing their identities."""

from multicentre.linkage.alignment.alignment import Alignment, align, find_places

__all__ = ["Alignment", "align", "find_places"]
