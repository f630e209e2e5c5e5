"""Verdict, evidence and the next thing to do."""

from hf_trainplus.monitor.diagnosis.diagnose import diagnose, tell
from hf_trainplus.monitor.diagnosis.evidence import AllocatorEvidence, DeviceEvidence, Evidence, Series, Settings
from hf_trainplus.monitor.diagnosis.gather import gather_evidence
from hf_trainplus.monitor.diagnosis.report_section import report_section
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.rules import RULES
from hf_trainplus.monitor.diagnosis.verdict import Verdict

__all__ = [
    "RULES",
    "AllocatorEvidence",
    "DeviceEvidence",
    "DiagnosisRule",
    "Evidence",
    "Series",
    "Settings",
    "Verdict",
    "diagnose",
    "gather_evidence",
    "report_section",
    "tell",
]
