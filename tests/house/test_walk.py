"""The walk of a plan: how many named calls lie between the process that plans and the matrix product of eq. 8."""

import sys
from pathlib import Path

import pytest

import saltwm
from saltwm.ground.config import CEMConfig, GaussNewtonConfig
from saltwm.jobs.cell import evaluate
from saltwm.jobs.chunks import chunk_writer
from saltwm.jobs.evaluate import Evaluate, settle
from saltwm.processes.pool import Workers

PRODUCT = Path(saltwm.__file__).parent
AT_MOST = 8


def writing_walks(name, file):
    """In a worker: the writer of chunks; each product of this name writes down the way to it, if it is the longest."""
    import torch

    product = getattr(torch, name)
    deepest = []

    def noted(*arguments, **options):
        walk = named_calls(sys._getframe(1))
        if len(walk) > len(deepest):
            deepest[:] = walk
            Path(file).write_text("\n".join(walk))
        return product(*arguments, **options)

    setattr(torch, name, noted)
    return chunk_writer()


def named_calls(frame):
    """The functions of saltwm on the stack, outermost first; a comprehension is a part of its function."""
    walk = []
    while frame is not None:
        code = frame.f_code
        if PRODUCT in Path(code.co_filename).parents and not code.co_name.startswith("<"):
            walk.insert(0, f"{Path(code.co_filename).relative_to(PRODUCT)} {code.co_qualname}")
        frame = frame.f_back
    return walk


CASES = [
    (CEMConfig(candidates=12, iterations=2, elites=4), "addmm", "planning/cem.py cem"),
    (GaussNewtonConfig(starts=2, iterations=2), "baddbmm", "planning/gauss_newton.py gauss_newton"),
]


@pytest.mark.parametrize(("planner", "product", "search"), CASES, ids=["cem", "gauss-newton"])
def test_eight_named_calls_lead_from_the_planning_process_to_the_product(
    run, dataset, tmp_path, planner, product, search
):
    job = Evaluate(str(run), data=dataset.path, out=tmp_path, protocol="paper", tasks=1, planner=planner)
    with Workers(1, writing_walks, product, str(tmp_path / "walk.txt")) as pool:
        evaluate(settle(job, tmp_path), pool, pictures=0)
    walk = (tmp_path / "walk.txt").read_text().splitlines()
    assert walk[0] == "processes/pool.py _live"
    assert search in walk
    assert walk[-1].startswith("model/folded.py")
    assert len(walk) <= AT_MOST, "\n".join(walk)
