"""What FSDP2 shards as a unit of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from torch import nn
    from transformers import Trainer


def shard_input_embedding_once(trainer: Trainer) -> None:
    """Name the layers that FSDP2 shards, where a model's own names would have it shard the input embedding twice.

    Without names Accelerate (1.15) takes the model's ``_no_split_modules``, and then shards the input embedding by
    itself as well. Of BERT and its kin the module around the embedding is among these names, and the second sharding
    fails. Names that the user gives stay.

    Args:
        trainer: its plugin and model count; without FSDP2 nothing happens.
    """
    plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    if plugin is None or plugin.fsdp_version != 2 or plugin.transformer_cls_names_to_wrap is not None:
        return
    names = list(getattr(trainer.model, "_no_split_modules", None) or [])
    apart = [name for name in names if name not in around_input_embedding(cast("nn.Module", trainer.model))]
    if apart != names:
        plugin.transformer_cls_names_to_wrap = apart


def around_input_embedding(model: nn.Module) -> set[str]:
    """Return the class names of the modules that hold the input embedding, the embedding itself left out.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> config = BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1)
        >>> sorted(around_input_embedding(BertModel(config)))
        ['BertEmbeddings', 'BertModel']
    """
    find: Any = getattr(model, "get_input_embeddings", None)
    embedding = find() if callable(find) else None
    if embedding is None:
        return set()
    holders = (
        one for one in model.modules() if one is not embedding and any(part is embedding for part in one.modules())
    )
    return {type(one).__name__ for one in holders}
