"""Audits of differential privacy: lower bounds on epsilon from repeated runs, next to the claimed epsilon."""

from multicentre.studies.audit.result import AuditResult
from multicentre.studies.audit.runner import audit, audit_study

__all__ = ["AuditResult", "audit", "audit_study"]
