"""How fast planning is at the paper's sizes (App. B.6).

Every figure that matters is a ratio of two jobs that took turns in one run, in processor seconds of one thread, as
evaluation workers run. An iteration of CEM costs the same as the next one, so slow baselines run fewer of them
and are scaled to 30.
"""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saltwm.bench.timing import Figure, one_thread, take_turns
from saltwm.ground.config import (
    CEMConfig,
    CEMPriorConfig,
    EncoderConfig,
    GaussNewtonConfig,
    ImitationConfig,
    MapConfig,
    ModelConfig,
    PriorConfig,
    WorldSpec,
)
from saltwm.ground.rng import stream, torch_stream
from saltwm.jobs.presets import run_config
from saltwm.model.affine import StateAffine
from saltwm.model.folded import StepBuffers
from saltwm.model.transformer import TransformerPredictor
from saltwm.model.world_model import WorldModel
from saltwm.planning.agent import Agent
from saltwm.planning.cem import Cost, cem
from saltwm.planning.costs import Situation, terminal_cost
from saltwm.planning.gauss_newton import gauss_newton
from saltwm.planning.looks import split_plan
from saltwm.planning.policy import View
from saltwm.planning.prior import ActionPrior
from saltwm.report.paper_figures import EFFICIENCY

PAPER_CEM = CEMConfig()
HORIZONS = (5, 10, 15, 20)  # App. B.6
BATCH = 300  # App. B.6: latents per single step
MEMORY_TASKS = 50
CONTRACTION_NOTE = "it does 1.25 times SALT's products, and SALT's solve is near its own: there is no 2 on one thread"


def plan_figures(horizons: Sequence[int] = HORIZONS, rounds: int = 3, iterations: int = 30) -> list[Figure]:
    """All figures of planning; `iterations` of SALT's CEM are run, 30 of which are the paper's."""
    with one_thread(), torch.inference_mode():
        salt, lewm = paper_model("salt"), paper_model("lewm")
        figures = [_matmul_rate(), *_step_figures(salt, lewm, rounds)]
        for horizon in horizons:
            figures += _solve_figures(salt, lewm, horizon, rounds, iterations)
        figures += [*_decision_figures(rounds, iterations), *_growth_figures(salt, rounds)]
    return [*figures, _peak_memory(max(horizons))]


def paper_model(name: str, action_dim: int = 2) -> WorldModel:
    """A model of the paper's sizes from the latent on; its encoder is not timed and stays tiny.

    Every weight is shaken, because products with the zeros of the initialisation would be another measurement.
    """
    encoder = EncoderConfig(kind="conv", channels=(8,), width=16, projection_dim=16)
    model = WorldModel(
        ModelConfig(model=name, encoder=encoder), WorldSpec("two-room", action_dim, image_size=16)
    ).eval()
    generator = torch_stream(0, "bench", name)
    for parameter in model.parameters():
        parameter.requires_grad_(False).add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return model


take_turns_by_processor = partial(take_turns, clock=time.process_time)


def _matmul_rate() -> Figure:
    """The machine's own rate of single-precision matrix products."""
    size = 1024
    a, b, out = torch.randn(3, size, size).unbind()
    seconds = take_turns_by_processor({"product": lambda: torch.mm(a, b, out=out)}, rounds=10).fastest("product")
    return Figure("matrix product 1024 x 1024 x 1024, one thread", 2 * size**3 / seconds / 1e9, "GFLOP/s")


def _step_figures(salt: WorldModel, lewm: WorldModel, rounds: int) -> list[Figure]:
    """One transition for a batch of 300 latents: SALT, and LeWM with its projection head over its whole window."""
    timings = take_turns_by_processor(step_jobs(salt, lewm), rounds=max(5, 2 * rounds))
    return [
        Figure("SALT, one step, batch 300", timings.fastest("salt"), "s"),
        Figure("LeWM, one step, batch 300", timings.fastest("lewm"), "s", note=f"{lewm.window} latents of history"),
        Figure("LeWM / SALT, one step", timings.ratio("lewm", "salt"), "x", note=_papers("forward_ms")),
    ]


def _papers(cost: str) -> str:
    """What Table 2 has for the same ratio."""
    return f"the paper: {getattr(EFFICIENCY['lewm'], cost) / getattr(EFFICIENCY['salt'], cost):.1f} on an H100"


def step_jobs(salt: WorldModel, lewm: WorldModel) -> dict[str, Callable[[], object]]:
    """The step of each as a job, on the same latents and conditions."""
    assert isinstance(lewm.transition, TransformerPredictor)
    latents, conditions = torch.randn(2, BATCH, lewm.window, lewm.config.latent_dim).unbind()
    affine, predictor = salt.transition, lewm.transition
    return {
        "salt": lambda: affine(latents[:, -1], conditions[:, -1]),
        "lewm": lambda: predictor(latents, conditions),
    }


def _solve_figures(salt: WorldModel, lewm: WorldModel, horizon: int, rounds: int, iterations: int) -> list[Figure]:
    """One task solved by each way of planning, at one horizon."""
    at = _situation(1, salt.config.latent_dim)
    some, few = min(iterations, 5), 1
    jobs: dict[str, tuple[int, Callable[[], object]]] = {
        "salt": (iterations, partial(_solve, partial(terminal_cost, salt, at), horizon, iterations)),
        "products": (iterations, bare_products(salt, horizon, iterations)),
        "contraction": (some, partial(_solve, partial(contraction_cost, salt, at), horizon, some)),
        "matrices": (few, partial(_solve, partial(matrix_cost, salt, at), horizon, few)),
        "lewm": (few, partial(_solve, partial(terminal_cost, lewm, at), horizon, few)),
        "gauss-newton": (
            PAPER_CEM.iterations,
            lambda: gauss_newton(salt, at, horizon=horizon, generators=[torch_stream(0, "bench")]),
        ),
    }
    timings = take_turns_by_processor({name: job for name, (_, job) in jobs.items()}, rounds)
    scale = {name: PAPER_CEM.iterations / count for name, (count, _) in jobs.items()}

    def seconds(what: str, name: str) -> Figure:
        count = jobs[name][0]
        note = "" if count == PAPER_CEM.iterations else f"{count} of {PAPER_CEM.iterations} iterations run, scaled"
        return Figure(f"{what}, H={horizon}", scale[name] * timings.fastest(name), "s", note=note)

    def ratio(what: str, job: str, other: str, **wanted: float | str) -> Figure:
        value = timings.ratio(job, other) * scale[job] / scale[other]
        return Figure(f"{what}, H={horizon}", value, "x", **wanted)  # type: ignore[arg-type]

    newton = GaussNewtonConfig()
    return [
        seconds("SALT, CEM solve 300 x 30", "salt"),
        seconds("its bare matrix products", "products"),
        ratio("SALT / its bare matrix products", "salt", "products", at_most=1.25),
        ratio("a matrix per candidate / SALT", "matrices", "salt", at_least=10.0),
        ratio("optimised contraction / SALT", "contraction", "salt", at_least=2.0, note=CONTRACTION_NOTE),
        seconds("LeWM, CEM solve 300 x 30", "lewm"),
        ratio("LeWM / SALT, CEM solve", "lewm", "salt", note=_papers("planning_seconds")),
        Figure(
            f"SALT, Gauss-Newton solve, H={horizon}",
            timings.fastest("gauss-newton"),
            "s",
            note=f"{newton.starts} starts, {newton.iterations} iterations",
        ),
        ratio("CEM / Gauss-Newton, SALT", "salt", "gauss-newton", at_least=10.0),
    ]


FEW_CANDIDATES = CEMPriorConfig(CEMConfig(candidates=64, elites=8, iterations=6))
"""With a prior CEM needs a 23rd of the paper's candidates: docs/search.md has its success."""


def _decision_figures(rounds: int, iterations: int) -> list[Figure]:
    """One decision from pictures of 64 px to actions, encoding included: the small preset's model, one task.

    In closed loop it is the mean over a cycle of looks, with 5, 4, 3, 2 and 1 blocks left. An action prior that learnt
    nothing takes as long as one that did.
    """
    model = WorldModel(run_config("cpu").model, WorldSpec("two-room", 2)).eval().requires_grad_(False)
    prior = ActionPrior(PriorConfig(), model.config.latent_dim, model.action_encoder.block_dim)
    agents: dict[str, tuple[str, Agent]] = {
        "cem": ("CEM solve 300 x 30, encoding included", Agent(model, replace(PAPER_CEM, iterations=iterations))),
        "cem-prior": ("CEM solve 64 x 6 with a prior, encoding included", Agent(model, FEW_CANDIDATES, prior=prior)),
        "prior": ("prior, a look after each block", Agent(model, ImitationConfig(), prior=prior, look_every=1)),
        "gauss-newton": ("Gauss-Newton, a look after each block", Agent(model, GaussNewtonConfig(), look_every=1)),
        "map": ("map, a look after each block", Agent(model, MapConfig(), prior=prior, look_every=1)),
    }
    timings = take_turns_by_processor({name: partial(_cycle, agent) for name, (_, agent) in agents.items()}, rounds)
    # One blind solve of CEM against the mean of the five looks that the same five blocks take in closed loop.
    share = {name: 1.0 if agent.look_every is None else 1 / agent.horizon_blocks for name, (_, agent) in agents.items()}
    scale = PAPER_CEM.iterations / iterations
    figures = []
    for name, (what, _) in agents.items():
        seconds = timings.fastest(name) * share[name] * (scale if name == "cem" else 1)
        figures.append(Figure(f"one decision: {what}", seconds, "s"))
        if name != "cem":
            ratio = timings.ratio(name, "cem") * share[name] / scale
            figures.append(Figure(f"one decision: {name} / CEM solve", ratio, "x", at_most=1 / 20))
    return figures


def _cycle(agent: Agent) -> None:
    """The decisions for five blocks of one task: one, or one after each block."""
    executed, rest, size = 0, None, agent.model.world.image_size
    frames = stream(0, "bench", "frames").integers(0, 256, (2, 1, 1, size, size, 3), np.uint8)
    nothing = np.empty((1, 0, agent.model.action_encoder.block_dim), np.float32)
    while executed < agent.horizon_blocks:
        view = View(frames[0], nothing, frames[1, 0], np.array([executed]), rest)
        now, rest = split_plan(agent.decide(view, [(executed,)]))
        executed += now.shape[1] // agent.model.config.frameskip


def _growth_figures(salt: WorldModel, rounds: int) -> list[Figure]:
    """How Gauss-Newton's time grows with the horizon and with the tasks: 4 times as much asks 4 times the time."""

    def solve(horizon: int, tasks: int) -> Callable[[], object]:
        at = _situation(tasks, salt.config.latent_dim)
        own = [torch_stream(0, "bench", task) for task in range(tasks)]
        return lambda: gauss_newton(salt, at, horizon=horizon, generators=own)

    timings = take_turns_by_processor({"one": solve(5, 1), "far": solve(20, 1), "many": solve(5, 4)}, rounds)
    return [
        Figure("Gauss-Newton, H=20 / H=5", timings.ratio("far", "one"), "x", at_most=6.0, note="linear: 4"),
        Figure("Gauss-Newton, 4 tasks / 1 task", timings.ratio("many", "one"), "x", at_most=4.4, note="linear: 4"),
    ]


def bare_products(model: WorldModel, horizon: int, iterations: int) -> Callable[[], None]:
    """The matrix products of a CEM solve of one task and nothing else, into memory that is there already."""
    folded = model.transition.folded(model.action_encoder)
    at = StepBuffers.of(folded, PAPER_CEM.candidates)
    for buffer in vars(at).values():
        buffer.normal_()  # uninitialised memory may hold denormal numbers, which are slow
    blocks = torch.randn(PAPER_CEM.candidates, len(folded.hidden_weight))
    gates, first, weighted = at.effects[:, : -folded.dim], folded.moved(at.latents[:1])[0], at.weighted.flatten(1)
    hidden, effects, latents = (torch.empty_like(buffer) for buffer in (at.hidden, at.effects, at.latents))

    def run() -> None:
        for _ in range(iterations):
            for step in range(horizon):
                torch.mm(blocks, folded.hidden_weight, out=hidden)
                torch.mm(at.hidden, folded.effect_weight, out=effects)
                if step == 0:
                    torch.mm(gates, first, out=latents)
                else:
                    torch.mm(weighted, folded.modes, out=latents)

    return run


def matrix_cost(model: WorldModel, situation: Situation) -> Cost:
    """The terminal cost as the paper writes the transition (Alg. 1): A(c), a d x d matrix for every candidate."""
    transition = model.transition
    assert isinstance(transition, StateAffine)
    base, modes = transition.base_matrix(), transition.N

    def step(z: Tensor, c: Tensor) -> Tensor:
        matrices = base + torch.einsum("br,rij->bij", transition.W_g(c), modes)
        return torch.einsum("bij,bj->bi", matrices, z) + transition.B(c)

    return _stepped_cost(model, situation, step)


def contraction_cost(model: WorldModel, situation: Situation) -> Cost:
    """The terminal cost without a matrix per candidate: plain einsums over the stacked modes, in the best order."""
    transition = model.transition
    assert isinstance(transition, StateAffine)
    modes = torch.cat([transition.base_matrix()[None], transition.N])

    def step(z: Tensor, c: Tensor) -> Tensor:
        gates = torch.cat([torch.ones_like(c[:, :1]), transition.W_g(c)], dim=1)
        return torch.einsum("br,bri->bi", gates, torch.einsum("bj,rij->bri", z, modes)) + transition.B(c)

    return _stepped_cost(model, situation, step)


def _stepped_cost(model: WorldModel, situation: Situation, step: Callable[[Tensor, Tensor], Tensor]) -> Cost:
    """Terminal cost by repeating step(z [S, D], c [S, D]) -> [S, D]."""

    def one(task: int, plans: Tensor) -> Tensor:
        z = situation.history[task, -1].expand(len(plans), -1)
        for c in model.action_encoder.encode_normalised(plans).unbind(dim=1):
            z = step(z, c)
        return (z - situation.goal[task]).square().mean(dim=1)

    return lambda candidates: torch.stack([one(task, plans) for task, plans in enumerate(candidates)])


def solve(model: WorldModel, horizon: int, iterations: int, action_dim: int) -> None:
    """One task planned by CEM from as much history as the model looks back at."""
    at = _situation(1, model.config.latent_dim, model.window)
    _solve(partial(terminal_cost, model, at), horizon, iterations, action_dim=action_dim)


def _solve(make_cost: Callable[[], Cost], horizon: int, iterations: int, tasks: int = 1, action_dim: int = 10) -> None:
    config = CEMConfig(PAPER_CEM.candidates, iterations, PAPER_CEM.elites)
    generators = [torch_stream(0, "bench", task) for task in range(tasks)]
    cem(make_cost(), horizon=horizon, action_dim=action_dim, generators=generators, config=config)


def _situation(tasks: int, dim: int, window: int = 1) -> Situation:
    generator = torch_stream(0, "bench", "situation")
    return Situation(
        torch.randn(tasks, window, dim, generator=generator),
        torch.randn(tasks, window - 1, dim, generator=generator),
        torch.randn(tasks, dim, generator=generator),
    )


def _peak_memory(horizon: int) -> Figure:
    """Largest resident memory of a fresh process that plans for 50 tasks at once, Python and torch included."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        megabytes = pool.submit(_plan_in_a_fresh_process, horizon).result()
    what = f"peak memory of a process planning {MEMORY_TASKS} tasks, H={horizon}"
    return Figure(what, megabytes, "MB", at_most=1000.0, note="2 iterations; they reuse the same memory")


def _plan_in_a_fresh_process(horizon: int) -> float:
    torch.set_num_threads(1)
    with torch.inference_mode():
        salt = paper_model("salt")
        at = _situation(MEMORY_TASKS, salt.config.latent_dim)
        _solve(partial(terminal_cost, salt, at), horizon, 2, MEMORY_TASKS)
    # The kernel's other measure, ru_maxrss, begins with what the process that started this one held.
    (peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024  # from kB
