"""Fingerprints of what an evaluation depends on: weights, model, data, and the code of metrics and collators."""

from hf_trainplus.evaluation.fingerprints.data import DataFingerprints as DataFingerprints
from hf_trainplus.evaluation.fingerprints.kinds import ObjectFingerprints as ObjectFingerprints
from hf_trainplus.evaluation.fingerprints.weights import fingerprint_model as fingerprint_model
from hf_trainplus.evaluation.fingerprints.weights import fingerprint_weights as fingerprint_weights
