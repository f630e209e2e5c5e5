"""Rows that are computed when they are read, and a collator whose batches say which rows they hold."""

from collections import Counter

import torch


class Slow(torch.utils.data.Dataset):
    """Computes its rows, so nobody knows their lengths; writes down every read."""

    def __init__(self, n, text=True):
        self.n, self.text, self.reads = n, text, Counter()

    def __len__(self):
        return self.n

    def __getitem__(self, position):
        assert type(position) is int
        self.reads[position] += 1
        row = {"id": position, "input_ids": torch.arange(position * 7 % 13 + 1)}
        return row if self.text else {"id": position, "pixels": torch.zeros(3, 4, 4)}


def collate(rows):
    batch = {"id": torch.tensor([row["id"] for row in rows])}
    for name, pad in (("input_ids", True), ("pixels", False)):
        if name in rows[0]:
            values = [torch.as_tensor(row[name]) for row in rows]
            batch[name] = torch.nn.utils.rnn.pad_sequence(values, batch_first=True) if pad else torch.stack(values)
    return batch


def checked(batches):
    """Return the real ids of batches that hold the rows they say they hold."""
    ids = []
    for batch in batches:
        assert batch.inputs["id"].tolist() == batch.positions.tolist()
        ids += batch.positions[batch.real].tolist()
    return ids
