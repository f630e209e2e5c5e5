"""What several tests of callbacks look at."""

import logging

import pytest


@pytest.fixture
def warned():
    """The messages that the package's loggers let out."""
    found = []

    class Keep(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    handler = Keep()
    logging.getLogger("hf_trainplus").addHandler(handler)
    yield found
    logging.getLogger("hf_trainplus").removeHandler(handler)
