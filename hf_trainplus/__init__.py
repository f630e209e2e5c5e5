"""hf_trainplus: evaluation that is right, fast and cheap for the Hugging Face Trainer.

Names load on first use, so that ``import hf_trainplus`` stays as cheap as importing a few standard modules: it loads
neither torch nor transformers nor datasets.

Example:
    >>> import hf_trainplus
    >>> "ExampleResults" in dir(hf_trainplus)
    True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# public name -> module that defines it; a name is listed once its part is built
_MODULE_OF = {
    "representative_subset": "hf_trainplus.decisions.subset",
    "Estimate": "hf_trainplus.decisions.estimate",
    "estimate_cost": "hf_trainplus.budget.cost",
    "Stage": "hf_trainplus.budget.plans.stage",
    "StagePlan": "hf_trainplus.budget.stages",
    "Budget": "hf_trainplus.budget.budget",
    "BudgetCallback": "hf_trainplus.callbacks.budget",
    "EvaluationLeft": "hf_trainplus.evaluation.loop",
    "ExampleResults": "hf_trainplus.results",
    "Subset": "hf_trainplus.decisions.subset",
    "load_metric": "hf_trainplus.evaluation.metrics.registry",
    "GPUMonitorCallback": "hf_trainplus.callbacks.gpu_monitor",
    "MemoryLeakCallback": "hf_trainplus.callbacks.memory_leak",
    "StepClockCallback": "hf_trainplus.callbacks.step_clock",
    "PlusTrainer": "hf_trainplus.trainer",
    "PlusSeq2SeqTrainer": "hf_trainplus.trainer",
    "PlusTrainingArguments": "hf_trainplus.training_args",
    "PlusSeq2SeqTrainingArguments": "hf_trainplus.training_args",
    "PatienceCallback": "hf_trainplus.callbacks.patience",
    "AdaptiveEvaluationCallback": "hf_trainplus.callbacks.adaptive_evaluation",
}

__all__ = ["__version__", *sorted(_MODULE_OF)]

if TYPE_CHECKING:
    from hf_trainplus.budget.budget import Budget as Budget
    from hf_trainplus.budget.cost import estimate_cost as estimate_cost
    from hf_trainplus.budget.plans.stage import Stage as Stage
    from hf_trainplus.budget.stages import StagePlan as StagePlan
    from hf_trainplus.callbacks.adaptive_evaluation import AdaptiveEvaluationCallback as AdaptiveEvaluationCallback
    from hf_trainplus.callbacks.budget import BudgetCallback as BudgetCallback
    from hf_trainplus.callbacks.gpu_monitor import GPUMonitorCallback as GPUMonitorCallback
    from hf_trainplus.callbacks.memory_leak import MemoryLeakCallback as MemoryLeakCallback
    from hf_trainplus.callbacks.patience import PatienceCallback as PatienceCallback
    from hf_trainplus.callbacks.step_clock import StepClockCallback as StepClockCallback
    from hf_trainplus.decisions.estimate import Estimate as Estimate
    from hf_trainplus.decisions.subset import Subset as Subset
    from hf_trainplus.decisions.subset import representative_subset as representative_subset
    from hf_trainplus.evaluation.loop import EvaluationLeft as EvaluationLeft
    from hf_trainplus.evaluation.metrics.registry import load_metric as load_metric
    from hf_trainplus.results import ExampleResults as ExampleResults
    from hf_trainplus.trainer import PlusSeq2SeqTrainer as PlusSeq2SeqTrainer
    from hf_trainplus.trainer import PlusTrainer as PlusTrainer
    from hf_trainplus.training_args import PlusSeq2SeqTrainingArguments as PlusSeq2SeqTrainingArguments
    from hf_trainplus.training_args import PlusTrainingArguments as PlusTrainingArguments


def __getattr__(name: str) -> object:
    """Load a public name on first use.

    Raises:
        AttributeError: the name is not public.
    """
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'hf_trainplus' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *_MODULE_OF})
