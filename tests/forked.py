"""Processes forked from a server that has torch imported already, so that starting one costs a tenth of a second.

A fresh interpreter takes two processor seconds to import torch. What a test says of an evaluation or a dataset does not
depend on how its workers were started; test_workers.py and the promises' own processes start them as users do.
"""

import multiprocessing
import os
import signal

FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(
    [
        "lightning_fabric",
        "pytest",
        "saltwm.cli",
        "saltwm.disk.dataset_writer",
        "saltwm.envs.two_room",
        "saltwm.jobs.cell",
        "saltwm.planning.agent",
        "saltwm.train",
        "trainers",
    ]
)


class Forked:
    """What the pool wants of `multiprocessing`; its workers have the environment of whoever starts them."""

    Pipe = staticmethod(FORKSERVER.Pipe)
    parent_process = staticmethod(multiprocessing.parent_process)

    def get_context(self, method):
        assert method == "spawn"
        return self

    def Process(self, target, args, daemon):
        arguments = (dict(os.environ), target, args)
        return FORKSERVER.Process(target=_with_environment, args=arguments, daemon=daemon)


def hear_signals():
    """In a forked process: SIGINT and SIGTERM as a shell's child has them.

    The server ignores SIGINT, and blocks both if the first test that needed it held signals back while it started.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _with_environment(environment, target, arguments):
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)
