"""Run something in a child that is forked from a parent which has imported everything and started no thread."""

import gc
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path


def in_child(run, name, seconds=None):
    """Return what ``run()`` returns in a forked child, or None when the child was killed.

    The result and the child's texts are left in ``name``.json and ``name``.log; with ``seconds`` it is killed then.
    """
    result, log = Path(f"{name}.json"), Path(f"{name}.log")
    result.unlink(missing_ok=True)
    gc.freeze()  # a child's collections need not walk through, and so copy, what the parent has imported
    pid = os.fork()
    if pid == 0:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        try:
            result.write_text(json.dumps(run()))
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return None
    if not result.is_file():
        raise RuntimeError(log.read_text()[-3000:])
    return json.loads(result.read_text())
