"""Share of texts that equal their reference."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence

from hf_trainplus.evaluation.metrics.base import Float64Array, ratio
from hf_trainplus.evaluation.metrics.texts import Decoder, TextMetric, rows_of


class ExactMatch(TextMetric):
    """Share of rows whose text equals the reference, after what is to be ignored has been taken out.

    The order is: regular expressions, case, punctuation, digits. White space stays, unless
    ``postprocess=str.strip`` takes it off.

    Args:
        regexes_to_ignore: patterns removed from both texts.
        ignore_case: compare in lower case.
        ignore_punctuation: remove ASCII punctuation.
        ignore_numbers: remove the digits 0 to 9.
        tokenizer: see ``TextMetric``.
        postprocess: see ``TextMetric``.

    Logged keys: ``exact_match`` (0 to 1).

    Example:
        >>> metric = ExactMatch(ignore_case=True)
        >>> metric.update(["Paris", "Rome"], ["paris", "Oslo"])
        >>> metric.compute()
        {'exact_match': 0.5}
    """

    name = "exact_match"
    per_example = True

    def __init__(
        self,
        regexes_to_ignore: Sequence[str] | None = None,
        ignore_case: bool = False,
        ignore_punctuation: bool = False,
        ignore_numbers: bool = False,
        tokenizer: Decoder | None = None,
        postprocess: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__(tokenizer, postprocess)
        self.regexes_to_ignore = regexes_to_ignore
        self.ignore_case = ignore_case
        self.ignore_punctuation = ignore_punctuation
        self.ignore_numbers = ignore_numbers

    @property
    def statistics(self) -> int:
        """Two columns: match, row."""
        return 2

    def _row_statistics(self, predictions: list[str], references: list[list[str]]) -> Float64Array:
        matches = [
            [float(self._plain(text) == self._plain(row[0])), 1.0]
            for text, row in zip(predictions, references, strict=True)
        ]
        return rows_of(matches, 2)

    def _plain(self, text: str) -> str:
        for pattern in self.regexes_to_ignore or ():
            text = re.sub(pattern, "", text)
        text = text.lower() if self.ignore_case else text
        removed = string.punctuation * self.ignore_punctuation + string.digits * self.ignore_numbers
        return text.translate(str.maketrans("", "", removed))

    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return matches over rows."""
        return ratio(totals[..., 0], totals[..., 1])
