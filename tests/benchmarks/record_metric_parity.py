"""Record what the metric scripts of huggingface/evaluate return on fixed inputs, for tests/evaluation/test_metrics_parity.py.

The scripts are read from a copy outside the project; nothing of them is kept here but the values that they return:

    python -m tests.benchmarks.record_metric_parity COPY/metrics NMT_COPY/nmt/scripts/bleu.py \
        --commit COMMIT_OF_EVALUATE --nmt-commit COMMIT_OF_NMT
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.benchmarks.parity_inputs import CASES, TEXTS, make_inputs

LIBRARIES = ("evaluate", "numpy", "scikit-learn", "scipy", "seqeval", "sacrebleu", "rouge-score", "jiwer")
OUTPUT = Path(__file__).parents[1] / "evaluation" / "metric_parity.json"


def main() -> None:
    """Run every case and write the values beside the commits that they come from."""
    arguments = _arguments()
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripts = Path(shutil.copytree(arguments.metrics, Path(folder) / "metrics"))
        shutil.copy(arguments.nmt_bleu, scripts / "bleu" / "nmt_bleu.py")
        inputs = make_inputs()
        cases = [case | {"evaluate": run(case, inputs[case["inputs"]], scripts)} for case in CASES]
        perplexity = run_perplexity(scripts, Path(folder) / "model")
    record = {
        "source": {
            "repository": "huggingface/evaluate",
            "commit": arguments.commit,
            "bleu": f"tensorflow/nmt nmt/scripts/bleu.py at {arguments.nmt_commit}",
        },
        "libraries": {name: version(name) for name in LIBRARIES},
        "inputs": inputs,
        "cases": cases,
        "perplexity": perplexity,
    }
    arguments.output.write_text(_lines(record))
    print(f"{len(cases) + 1} cases written to {arguments.output.name}")


def run(case: dict[str, Any], inputs: dict[str, Any], scripts: Path) -> Any:
    """Return what the case's script makes of its inputs."""
    metric = load_script(scripts, case["metric"], case.get("config"))
    rows = dict(inputs)
    if case["metric"] == "roc_auc":
        rows["prediction_scores"] = rows.pop("predictions")
    return metric.compute(**rows, **case["evaluate_options"])


def load_script(scripts: Path, name: str, config: str | None) -> Any:
    """Make the metric of a script, which is a package of its own folder."""
    import evaluate

    package = f"recorded_{name}"
    place = scripts / name / f"{name}.py"
    spec = importlib.util.spec_from_file_location(package, place, submodule_search_locations=[str(place.parent)])
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"no metric script at {place}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[package] = module
    spec.loader.exec_module(module)
    (metric,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, evaluate.Metric) and value.__module__ == package
    )
    return metric(config_name=config, cache_dir=str(scripts / "cache"), seed=0)


def run_perplexity(scripts: Path, folder: Path) -> dict[str, Any]:
    """Return the script's perplexities of a seeded tiny model beside the row losses that the same model has."""
    import torch

    tokenizer, model = _tiny_language_model(folder)
    result = load_script(scripts, "perplexity", None).compute(predictions=TEXTS, model_id=str(folder), device="cpu")
    losses, targets = [], []
    for text in TEXTS:
        ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(text)["input_ids"]]])
        with torch.no_grad():
            logits = model(ids).logits.double()
        losses.append(float(torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="sum")))
        targets.append(ids.shape[1] - 1)
    return {"loss_sum": losses, "target_count": targets, "evaluate": result}


def _tiny_language_model(folder: Path) -> tuple[Any, Any]:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    words = sorted({word for text in TEXTS for word in text.split()})
    vocabulary = {word: place for place, word in enumerate(["<s>", "<pad>", "<unk>", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", pad_token="<pad>", unk_token="<unk>")
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "vocab_size": len(vocabulary)} | {
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    model = GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.5)).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer, model


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("metrics", type=Path, help="folder of the metric scripts")
    parser.add_argument("nmt_bleu", type=Path, help="bleu.py that the bleu script imports")
    parser.add_argument("--commit", required=True)
    parser.add_argument("--nmt-commit", required=True)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser.parse_args()


def _lines(record: dict[str, Any]) -> str:
    """Write one case and one input a line, so that a new recording is a readable diff."""

    def block(name: str) -> str:
        value = record[name]
        rows = value if isinstance(value, list) else [{key: row} for key, row in value.items()]
        texts = [json.dumps(row, default=_plain) for row in rows]
        if isinstance(value, list):
            return "[\n" + ",\n".join(texts) + "\n]"
        return "{\n" + ",\n".join(text[1:-1] for text in texts) + "\n}"

    return "{\n" + ",\n".join(f"{json.dumps(name)}: {block(name)}" for name in record) + "\n}\n"


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


if __name__ == "__main__":
    main()
