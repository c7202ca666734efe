"""Formulas of regression models: a strict grammar, columns that sites build from a declared design, and its agreement.

The grammar is read at the coordinator. A site receives a :class:`Design`: names of columns, functions of a closed list
and their numbers. Neither evaluates an expression.
"""

from multicentre.formula.agreement import agree_design
from multicentre.formula.columns import build_columns, differentiate_columns
from multicentre.formula.design import Design
from multicentre.formula.grammar import Formula, parse_formula
from multicentre.formula.site import FormulaPart

__all__ = [
    "Design",
    "Formula",
    "FormulaPart",
    "agree_design",
    "build_columns",
    "differentiate_columns",
    "parse_formula",
]
