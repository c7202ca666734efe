"""Audits of differential privacy: what repeated runs prove of epsilon, beside what is claimed."""

from multicentre.studies.audit.result import AuditResult
from multicentre.studies.audit.runner import audit, audit_study

__all__ = ["AuditResult", "audit", "audit_study"]
