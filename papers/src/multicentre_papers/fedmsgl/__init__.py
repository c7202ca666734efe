"""Table 3 and Figure 2 of the FedMSGL paper on the same data where they are public, and what they rest on."""

from multicentre_papers.fedmsgl.runner import reproduce

__all__ = ["reproduce"]
