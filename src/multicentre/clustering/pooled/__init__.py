"""The methods for pooled views that FedMSGL is compared with."""

from multicentre.clustering.pooled.cdmgc import CDMGC
from multicentre.clustering.pooled.fsmsc import FSMSC
from multicentre.clustering.pooled.rcagl import RCAGL
from multicentre.clustering.pooled.sc import SC
from multicentre.clustering.pooled.sfmc import SFMC

__all__ = ["CDMGC", "FSMSC", "RCAGL", "SC", "SFMC"]
