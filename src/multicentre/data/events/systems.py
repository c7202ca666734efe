"""The code systems that the package knows, and how a code of each is written."""

from __future__ import annotations

SYSTEMS = {
    "icd9cm-dx": "ICD-9-CM diagnoses",
    "icd9cm-proc": "ICD-9-CM procedures",
    "icd10": "ICD-10 diagnoses (WHO)",
    "icd10cm": "ICD-10-CM diagnoses",
    "icd10pcs": "ICD-10-PCS procedures",
    "hcpcs": "HCPCS procedures and supplies, CPT among them",
    "ccs-dx": "CCS single-level categories of diagnoses",
    "ccsr-dx": "CCSR categories of diagnoses",
    "atc": "ATC classes of drugs",
    "ndc": "NDC drug products",
    "rxnorm": "RxNorm drugs",
    "snomed": "SNOMED CT concepts",
    "eicu-treatment": "treatments of the eICU database, as paths of text",
    "omop-condition": "OMOP standard concepts of conditions",
    "omop-procedure": "OMOP standard concepts of procedures",
}


def plain_code(system: str, code: str) -> str:
    """Return a code in the one way that the package writes it: upper case, ICD codes without dots and blanks.

    Leading zeros stay: procedure ``0040`` and diagnosis ``040`` are other codes than ``40``.

    Examples
    --------
    >>> plain_code("icd9cm-dx", " 428.0")
    '4280'
    >>> plain_code("icd10cm", "e11.9 ")
    'E119'
    >>> plain_code("eicu-treatment", "renal | dialysis")
    'RENAL | DIALYSIS'
    """
    words = code.upper().split()
    return "".join(words).replace(".", "") if system.startswith("icd") else " ".join(words)
