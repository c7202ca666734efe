"""Scores of models of several views: how well rows are rebuilt, and how likely they are."""
