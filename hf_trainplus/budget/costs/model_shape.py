"""What a model multiplies, as numbers: the input of the cost formulas. Pure; ``model_reading`` makes it of a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

# Which tokens go through: the (source) input, a decoder's target, or one position a sequence (a pooler).
Side = Literal["input", "target", "sequence"]


@dataclass(frozen=True)
class Product:
    """Weights that are multiplied with each token once.

    Args:
        weights: number of weights, >= 0.
        share: how often one token is multiplied with them: top-k / experts for a mixture of experts, the number of
            layers that share them, else 1.
        trainable: whether they get a gradient.
        input_gradient: whether the gradient goes on to what lies before them.
        in_block: whether gradient checkpointing recomputes them.
        side: which tokens go through.
    """

    weights: float
    share: float = 1.0
    trainable: bool = True
    input_gradient: bool = True
    in_block: bool = True
    side: Side = "input"


@dataclass(frozen=True)
class Attention:
    """Layers whose tokens look at other tokens.

    Args:
        layers: number of equal layers.
        width: heads times dimensions of queries and keys.
        value_width: heads times dimensions of values.
        causal: whether a token sees only those before it.
        window: number of tokens seen at most, None for all.
        queries: side of the tokens that look.
        keys: side of the tokens looked at.
        gradient: whether a gradient goes through.
        banded: whether also a dense kernel leaves out what is outside the window, in overlapping chunks (Longformer).
    """

    layers: int
    width: int
    value_width: int
    causal: bool = False
    window: int | None = None
    queries: Side = "input"
    keys: Side = "input"
    gradient: bool = True
    banded: bool = False


@dataclass(frozen=True)
class Sizes:
    """Widths that activation memory depends on.

    Args:
        hidden: width of the residual stream.
        layers: blocks, a decoder's beside an encoder's included.
        attention: heads times dimensions.
        key_value: key-value heads times dimensions.
        heads: attention heads.
        feed_forward: width inside the feed-forward part that one token uses.
        activation_copies: tensors of the feed-forward width that its activation keeps: two for a plain one (before and
            after), four with a gate, more for one that is written in Python.
        experts_used: experts that a token goes through, 0 without experts.
        vocabulary: width of the output, 0 without a head over the vocabulary.
        root_mean_square: whether norms are root-mean-square norms in float32.
        dropout: whether dropout masks are kept.
        target_layers: those of the blocks that belong to an encoder-decoder's decoder and look at its encoder.
    """

    hidden: int
    layers: int
    attention: int
    key_value: int
    heads: int
    feed_forward: int
    activation_copies: float = 2.0
    experts_used: int = 0
    vocabulary: int = 0
    root_mean_square: bool = False
    dropout: bool = False
    target_layers: int = 0


@dataclass(frozen=True)
class ModelShape:
    """A model for the cost formulas.

    Args:
        name: for a person.
        parameters: all weights, shared ones once.
        trainable_parameters: those that get a gradient.
        products: weights multiplied with tokens; an embedding that is only looked up is none.
        attention: quadratic part.
        sizes: widths for activation memory, None when they are not known.
        notes: what the formulas leave out for this model.

    Example:
        >>> shape = ModelShape.of_count(175e9)
        >>> shape.parameters, shape.activated_parameters
        (175000000000.0, 175000000000.0)
    """

    name: str
    parameters: float
    trainable_parameters: float
    products: tuple[Product, ...]
    attention: tuple[Attention, ...] = ()
    sizes: Sizes | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of_count(cls, parameters: float) -> ModelShape:
        """Return the shape of a dense model of which only the number of parameters is known.

        Raises:
            ValueError: the number is not above 0.
        """
        if not parameters > 0:
            raise ValueError(f"parameters={parameters}; allowed are numbers above 0, e.g. 7e9.")
        note = "attention and activation memory are left out: only the number of parameters is known"
        return cls(f"{parameters:.3g} parameters", parameters, parameters, (Product(parameters),), notes=(note,))

    @property
    def activated_parameters(self) -> float:
        """Weights that one token is multiplied with."""
        return sum(product.weights * product.share for product in self.products)

    @property
    def has_target_side(self) -> bool:
        """True for an encoder-decoder."""
        return any(product.side == "target" for product in self.products)

    def renamed(self, name: str) -> ModelShape:
        """Return the same shape under another name."""
        return replace(self, name=name)
