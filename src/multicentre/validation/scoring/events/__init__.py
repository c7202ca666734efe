"""Scores of factorisations of events: part of a held-out patient is rebuilt from the rest."""
