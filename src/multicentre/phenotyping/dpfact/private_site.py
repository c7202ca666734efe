"""What a differentially private fit asks of a site: sums to which no patient adds more than a set amount."""

from __future__ import annotations

from typing import ClassVar

from multicentre.federation.messages import Message
from multicentre.phenotyping.agreement import TensorPart
from multicentre.phenotyping.dpfact import messages as sent


class PrivateSteps(TensorPart):
    """Steps whose releases declare how far one patient can move them."""

    remembers: ClassVar[type[Message]] = sent.SiteMemory

    @property
    def memory(self) -> sent.SiteMemory:
        """What was agreed, and the factors and memberships of the last round."""
        memory = super().memory
        assert isinstance(memory, sent.SiteMemory)
        return memory
