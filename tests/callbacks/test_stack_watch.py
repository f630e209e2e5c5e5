import gc
import threading
import weakref

import pytest

from hf_trainplus.callbacks._stack_watch import watch_caller
from hf_trainplus.monitor.devices import OpenDevices
from hf_trainplus.monitor.sampler import Sampler


class Model:
    """Something that the watched function holds."""


def train(questions, error=None):
    model = Model()
    questions.append((watch_caller(), weakref.ref(model)))
    if error is not None:
        raise error


def from_another_thread(question):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(question()))
    thread.start()
    thread.join()
    return answers[0]


def test_it_lives_while_the_caller_has_not_returned():
    assert from_another_thread(watch_caller())


def test_the_same_function_called_again_is_another_call():
    questions = []
    for _ in range(20):  # frames are put where others were: an address alone said yes nearly always
        train(questions)

    def ask_all_inside(found):
        train(found)
        return [from_another_thread(question) for question, _ in questions]

    assert ask_all_inside([]) == [False] * 20


@pytest.mark.parametrize("error", [RuntimeError("mine"), KeyboardInterrupt()])
def test_after_an_exception_nothing_is_kept_once_the_answer_was_no(error):
    questions = []
    with pytest.raises(type(error)):
        train(questions, error)
    error.__traceback__ = None
    question, model = questions[0]
    assert not from_another_thread(question)
    gc.collect()
    assert model() is None


def test_a_sampler_that_was_stopped_keeps_nothing_of_training():
    questions = []
    train(questions)
    question, model = questions.pop()
    sampler = Sampler(OpenDevices(), None, alive=question)
    sampler.stop()
    del question
    gc.collect()
    assert model() is None
