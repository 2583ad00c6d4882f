"""Checkpoints of a Greylag job, for programs in Python.

Copy this file next to the program, or add /usr/share/greylag/python to PYTHONPATH. It needs Python 3.8 and
nothing else. It calls the command gctl, which every job has.

    import greylag_checkpoint as checkpoint

    step = 0
    saved = checkpoint.resume_from()
    if saved:
        load(saved / "model"); step = checkpoint.resume_step()
    while step < steps:
        step += 1; train()
        if checkpoint.due(minutes=30):
            path = checkpoint.begin()
            save(path / "model")
            checkpoint.commit(path, step)

In a program of several processes, call due, begin and commit in one of them and broadcast the results to the
others, which save as well: see the recipes.
"""

import os
import pathlib
import subprocess
import threading
import time

__all__ = ["Committer", "NoCheckpointDir", "attempt", "begin", "commit", "due", "resume_from", "resume_step"]


class NoCheckpointDir(RuntimeError):
    """The program does not run in a job, or the job has no directory for checkpoints."""


def attempt():
    """Return the number of this run of the job, from 1; 0 outside a job."""
    return int(os.environ.get("GREYLAG_ATTEMPT", "0"))


def resume_from():
    """Return the directory of the checkpoint to continue from as a pathlib.Path; None to start from the beginning.

    The nodes of the job have verified it. A prefix in S3 is a string such as s3://bucket/prefix.
    """
    path = os.environ.get("GREYLAG_RESUME_FROM")
    return _location(path) if path else None


def resume_step():
    """Return the step of the checkpoint to continue from; 0 without one."""
    return int(os.environ.get("GREYLAG_RESUME_STEP") or 0)


def begin():
    """Create an empty directory for a checkpoint, and return its path; in S3 an unused prefix, as a string.

    Raise NoCheckpointDir if the job was submitted without --checkpoint.
    """
    if not os.environ.get("GREYLAG_CHECKPOINT_DIR"):
        raise NoCheckpointDir("submit the program in a job with --checkpoint=FOLDER")
    return _location(_gctl("checkpoint", "begin").rstrip("\n"))


def commit(path, step=None, hashes=True):
    """Record a directory as a checkpoint. All processes must have closed their files.

    Without hashes it takes no time, and damaged files are not found. Raise subprocess.CalledProcessError if the
    checkpoint was not recorded; gctl has written the reason to stderr.
    """
    words = ["checkpoint", "commit", str(path)]
    if step is not None:
        words += ["--step", str(int(step))]
    if not hashes:
        words.append("--no-hash")
    _gctl(*words)


_last_due = time.monotonic()


def due(minutes):
    """Report whether that many minutes have passed since due last returned True, or since the start."""
    global _last_due
    now = time.monotonic()
    if now - _last_due < 60 * minutes:
        return False
    _last_due = now
    return True


class Committer:
    """Commits checkpoints in a thread, so that the program goes on while their files are hashed.

    after is a function that returns once the files are complete, such as the result method of the future of an
    asynchronous save.
    """

    def __init__(self):
        self._thread = None
        self._error = None

    def commit(self, path, step=None, after=None, hashes=True):
        """Start to commit. Wait for the commit before it, and raise its error."""
        self.wait()

        def run():
            try:
                if after is not None:
                    after()
                commit(path, step, hashes)
            except BaseException as error:  # raised again by wait
                self._error = error

        self._thread = threading.Thread(target=run, name="greylag-checkpoint")
        self._thread.start()

    def wait(self):
        """Wait until the last commit has ended, and raise its error."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error


def _location(text):
    return text if text.startswith("s3://") else pathlib.Path(text)


def _gctl(*words):
    return subprocess.run(["gctl", *words], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
