"""Plausible results on disk without training anything: what the report's tests and its screenshots are made from."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from saltwm.disk import durable
from saltwm.disk.durable import write_config
from saltwm.disk.records import (
    Decoding,
    Diagnosis,
    EpisodeRecord,
    Evaluation,
    PlanRecord,
    Probe,
    Probes,
    Stage,
    Task,
    TaskSet,
    Training,
)
from saltwm.envs import ENVIRONMENTS, env_class
from saltwm.evaluation.protocols import CLEAN_PROTOCOL, PAPER_PROTOCOL
from saltwm.evaluation.statistics import wilson
from saltwm.evaluation.tasks import with_kinds, write_tasks
from saltwm.ground.config import CEMConfig, ProtocolConfig, WorldSpec
from saltwm.ground.strict_json import to_plain

SKILL = {"salt": 0.94, "lewm": 0.72, "random": 0.08}


def make_results(
    root: Path,
    environments: tuple[str, ...] = ("two-room", "reacher"),
    methods: tuple[str, ...] = ("salt", "lewm", "random"),
    protocols: tuple[ProtocolConfig, ...] = (CLEAN_PROTOCOL, PAPER_PROTOCOL),
    seeds: tuple[int, ...] = (0,),
    n: int = 50,
    pictures: int = 3,
    prefix: str = "cell",
) -> Path:
    """A results folder with everything a report can show."""
    for environment in environments:
        for protocol in protocols:
            for seed in seeds:
                tasks = make_tasks(environment, protocol, seed, n)
                stem = f"{len(list(root.glob('tasks/*')))}"
                (root / "tasks").mkdir(parents=True, exist_ok=True)
                write_tasks(root / "tasks" / f"{stem}.json", tasks)
                for i, method in enumerate(methods):
                    make_cell(root, f"{prefix}-{stem}-{i}", tasks, f"tasks/{stem}.json", method, pictures)
        for method in methods:
            if method != "random":
                make_run(root, f"{slug(environment)}-{slug(method)}", environment, method)
    stages = [Stage(name, f"train data/{name}", 1234.5, 2, True) for name in environments]
    durable.write_json(root / "stages.json", [to_plain(stage) for stage in stages])
    return root


def slug(name: str) -> str:
    """A file name for a name that may not be one."""
    return durable.sha256_json(name)[:6] if {"/", "\0"} & set(name) else name


def make_tasks(environment: str, protocol: ProtocolConfig, seed: int, n: int) -> TaskSet:
    rng = np.random.default_rng(seed)
    size = env_class(environment).state_dim if environment in ENVIRONMENTS else 2

    def place() -> tuple[float, ...]:
        return tuple(rng.uniform(0, 224, size).tolist())

    tasks = tuple(Task(i, i, 3, place(), place(), float(rng.uniform(3, 9))) for i in range(n))
    chosen = TaskSet(WorldSpec(environment, 2), protocol, seed, "d4" * 32, 3 * n, n // 2, n, tasks)
    return with_kinds(chosen) if environment in ENVIRONMENTS else chosen


def make_episode(rng: np.random.Generator, task: int, method: str, budget: int) -> EpisodeRecord:
    success = bool(rng.random() < SKILL.get(method, 0.6))
    steps = int(rng.integers(6, budget + 1))
    costs = np.geomspace(1.0, 0.05, 30) * rng.uniform(0.5, 2)
    growth = float(np.exp(rng.normal(2.2 if method == "lewm" else 0.7, 0.8)))
    plans = (
        PlanRecord(0, tuple(costs.tolist())),
        PlanRecord(25, tuple((costs[-1] * growth * np.geomspace(1, 0.3, 30)).tolist())),
    )
    return EpisodeRecord(
        task=task,
        success=success,
        steps_to_success=steps if success else None,
        steps_taken=steps if success else budget,
        reason="reached" if success else "budget",
        start_distance=6.0,
        final_distance=0.5 if success else 3.0,
        closest_distance=0.5,
        plans=plans if method != "random" else (),
    )


def make_cell(root: Path, name: str, tasks: TaskSet, tasks_file: str, method: str, pictures: int) -> None:
    rng = np.random.default_rng([tasks.seed, *method.encode(), *tasks.world.environment.encode()])
    episodes = [make_episode(rng, task.index, method, tasks.protocol.budget_steps) for task in tasks.tasks]
    folder = root / "evaluations" / name
    (folder / "pictures").mkdir(parents=True)
    steps = [e.steps_to_success for e in episodes if e.steps_to_success is not None]
    learnt = method != "random"
    evaluation = Evaluation(
        environment=tasks.world.environment,
        method=method,
        protocol=tasks.protocol.name,
        horizon_blocks=tasks.protocol.horizon_blocks,
        planner=to_plain(CEMConfig()) if learnt else {},
        tasks_file=tasks_file,
        tasks_sha256=tasks.sha256,
        checkpoint=f"runs/{tasks.world.environment}-{method}/checkpoints/step-000200" if learnt else None,
        checkpoint_sha256="ab" * 32 if learnt else None,
        seed=tasks.seed,
        success=wilson(sum(e.success for e in episodes), len(episodes)),
        median_steps_to_success=float(np.median(steps)) if steps else None,
        seconds=12.5,
    )
    write_config(folder / "evaluation.json", evaluation)
    durable.write_text(folder / "episodes.jsonl", "")
    for episode in episodes:
        durable.append_json_line(folder / "episodes.jsonl", to_plain(episode))
    for episode in episodes[:pictures] if learnt else []:
        stem = f"task-{episode.task:03}-{episode.reason}"
        durable.write_bytes(folder / "pictures" / f"{stem}.gif", picture("GIF", 128, 64, 4))
        durable.write_bytes(folder / "pictures" / f"{stem}.png", picture("PNG", 384, 64, 1))


def picture(kind: str, width: int, height: int, frames: int) -> bytes:
    """A picture with something on it that moves."""
    images = []
    for i in range(frames):
        pixels = np.full((height, width, 3), 245, np.uint8)
        for left in range(0, width, 64):
            x = left + 8 + (i * 9 + left // 8) % 44
            pixels[24:34, x : x + 10] = (224, 123, 26) if left + 64 < width else (47, 111, 183)
            pixels[:, left : left + 1] = 200
        images.append(Image.fromarray(pixels))
    buffer = io.BytesIO()
    if kind == "GIF":
        images[0].save(buffer, kind, save_all=True, append_images=images[1:], duration=200, loop=0)
    else:
        images[0].save(buffer, kind)
    return buffer.getvalue()


def make_decoding(root: Path, run: str, environment: str, method: str, learnt: bool = True) -> Path:
    """Decoded predictions beside a run's diagnosis; of a decoder that learnt nothing if asked for."""
    folder = root / "diagnostics" / run
    folder.mkdir(parents=True, exist_ok=True)
    durable.write_bytes(folder / "decoded.png", picture("PNG", 640, 192, 1))
    times = tuple(range(0, 50, 5))
    decoding = Decoding(
        environment=environment,
        method=method,
        objective="rollout",
        run=f"runs/{run}",
        decoder="small",
        steps=1000,
        seed=0,
        frames=1900,
        stretches=64,
        context=3,
        times=times,
        true_mse=(0.0007 if learnt else 0.0051,) * len(times),
        predicted_mse=tuple(0.0009 * k for k in range(1, 8)),
        mean_mse=(0.005,) * len(times),
        picture_sha256=durable.sha256(folder / "decoded.png"),
    )
    write_config(folder / "decoded.json", decoding)
    return folder


def make_run(root: Path, run: str, environment: str, method: str) -> None:
    rng = np.random.default_rng(list(run.encode()))
    salt = method == "salt"
    steps = np.arange(1, 21)
    norm = 0.97**steps if salt else 1.06**steps
    diagnosis = Diagnosis(
        environment=environment,
        method=method,
        objective="one-step" if method == "lewm" else "rollout",
        run=f"runs/{run}",
        trajectories=64,
        one_step_error=0.12 if salt else 0.08,
        rollout_error=tuple(((0.12 if salt else 0.08) * steps ** (0.55 if salt else 0.8)).tolist()),
        propagation_norm=tuple(norm.tolist()),
        propagation_low=tuple((norm * 0.9).tolist()),
        propagation_high=tuple((norm * 1.12).tolist()),
        rho=tuple((2e-15 * steps if salt else 0.02 * steps**0.9).tolist()),
        effective_rank=41.3,
        sigma_max_base=0.993 if salt else None,
    )
    folder = root / "diagnostics" / run
    folder.mkdir(parents=True)
    write_config(folder / "diagnosis.json", diagnosis)
    identity = {name: getattr(diagnosis, name) for name in ("environment", "method", "objective", "run")}
    position = Probe("agent_position", 0.98, 0.98, 0.98) if salt else Probe("agent_position", 0.91, 0.85, 0.97)
    fields = (position, Probe("block_angle", *[0.55 if salt else 0.31] * 3))
    spread = 1e-15 if salt else 0.12
    probes = Probes(
        **identity, frames=2000, fields=fields, pairs=2000, cost_order=0.8, states=48, jacobian_spread=spread
    )
    write_config(folder / "probes.json", probes)
    training = Training(**identity, preset="cpu", steps=4000, batch_size=64, parameters=2_200_000,
                        data=f"data/{environment}", dataset_sha256="d4" * 32, seconds=2500.0)  # fmt: skip
    write_config(folder / "training.json", training)
    lines = []
    for step in range(0, 1200, 10):
        decay = float(np.exp(-step / 300) + 0.1) * float(rng.uniform(0.9, 1.1))
        line = {"step": step, "loss": decay * 1.4, "prediction": decay, "sigreg": decay * 4, "gradient_norm": decay * 3}
        line |= {
            "learning_rate": 1e-3 * min(1, step / 100),
            "effective_rank": 50 - 20 * decay,
            "latent_std": 1 - decay / 4,
        }
        if step % 100 == 0:
            line |= {"validation_one_step": decay * 0.9, "validation_rollout": decay * 1.6}
        lines.append(line)
    durable.write_text(folder / "metrics.jsonl", "")
    for line in lines:
        durable.append_json_line(folder / "metrics.jsonl", line)
