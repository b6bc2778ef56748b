"""What each verb tells when its job is done, and what to run next."""

import dataclasses
import functools
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saltwm.cli.printing import RESULTS, aligned, announce, next_command, readable, results_table, say
from saltwm.disk.claim import require_outside_datasets
from saltwm.disk.shipped import spoken
from saltwm.ground.config import ProtocolName
from saltwm.ground.strict_json import to_plain
from saltwm.jobs.again import AGAIN
from saltwm.jobs.bench import Bench, Measured, plain
from saltwm.jobs.collect import Collect
from saltwm.jobs.data import Data, DataExport, DataImport, DataPreview, DataStats, DataVerify
from saltwm.jobs.doctor import Doctor, Finding
from saltwm.jobs.environment import Env, EnvCheck, EnvList
from saltwm.jobs.evaluate import Evaluate, Play, Played, with_best_search
from saltwm.jobs.job import Composite, Job, command_line, naming_models, spell
from saltwm.jobs.measures import Decode, Diagnose
from saltwm.jobs.pages import Anatomy, Dissected, Film, Report, Results
from saltwm.jobs.prior import Prior
from saltwm.jobs.reproduce import Reproduce
from saltwm.jobs.score import Score
from saltwm.jobs.shipping import Card, Demo, Shelf, Ship, Shipped, Shown
from saltwm.jobs.study import Study
from saltwm.jobs.suite import Suite
from saltwm.jobs.train import Info, Train
from saltwm.jobs.weights import Export, ImportWeights

if TYPE_CHECKING:
    from saltwm.bench.timing import Figure
    from saltwm.disk.dataset import Dataset
    from saltwm.disk.records import Diagnosis, Efficiency, Evaluation, Probes
    from saltwm.envs.check import Checked
    from saltwm.interop.weights.public import Imported
    from saltwm.jobs.decode import Decoded
    from saltwm.jobs.diagnose import Diagnosed
    from saltwm.jobs.inspection import DatasetStats, Preview
    from saltwm.jobs.prior_learner import PriorResult
    from saltwm.jobs.scoring import OfflineScore, Ordered
    from saltwm.jobs.shelf import Item
    from saltwm.train import TrainResult


@dataclass(frozen=True)
class Told:
    """What is printed of a result."""

    told: Any = None
    """For a person: a dict becomes aligned lines, anything else is for rich."""
    next_is: str | None = None
    """Command to run next."""
    plain: Any = None
    """For --json; None where that prints `told` itself."""


def perform(job: Any) -> None:
    """Do a job and print what came of it."""
    if isinstance(job, Data | Env):
        job = job.job
    job = _with_known_environments(job)
    _require_own_place(job)
    if isinstance(job, Composite):
        for one in job.jobs():
            announce(naming_models(spell(one)))
            with job.around(one):
                perform(one)
    _print(tell(job, job.do()), getattr(job, "json", False))


def _with_known_environments(job: Job) -> Job:
    """The job with the names of environments that a person spelt in another way."""
    given = {name: getattr(job, name, None) for name in ("environment", "environments")}
    words = {name: value for name, value in given.items() if isinstance(value, str | tuple)}
    if not words:
        return job
    from saltwm.envs import spelled

    known = {name: spelled(v) if isinstance(v, str) else tuple(map(spelled, v)) for name, v in words.items()}
    return dataclasses.replace(job, **known)


def _require_own_place(job: Job) -> None:
    """UsageError for a job that would write into a dataset, before it writes; what makes one may go on with it."""
    out = getattr(job, "out", None)
    if isinstance(out, Path) and not isinstance(job, Train):  # training looks itself, also when Python starts it
        makes_one = isinstance(job, Collect | DataImport)
        require_outside_datasets(out.resolve().parent if makes_one else out, remedy="own folder")


def _print(result: Told | None, as_json: bool) -> None:
    if result is None:
        return
    if as_json:
        print(json.dumps(result.told if result.plain is None else result.plain))
    elif isinstance(result.told, dict):
        say(aligned(result.told))
    else:
        say(result.told)
    if result.next_is and not as_json:
        next_command(naming_models(result.next_is))


@functools.singledispatch
def tell(job: Job, result: Any) -> Told | None:
    """What is printed of a job's result; without a function of its own, the result or its fields, if there is one."""
    return None if result is None else Told(result if isinstance(result, dict) else dataclasses.asdict(result))


# --- data ------------------------------------------------------------------------------------------------------------


@tell.register(Collect)
def _collected(job: Collect, dataset: "Dataset") -> Told:
    run = f"runs/{dataset.world.environment}-salt"
    if job.held_out:
        then = _spell_in(dataset.world.environment, Evaluate(run, job.out, protocol="clean", out=RESULTS))
    else:
        then = spell(Train(job.out, Path(run), "quick"))
    facts: dict[str, Any] = {
        "dataset": str(job.out),
        "episodes": len(dataset.lengths),
        "actions": int(dataset.lengths.sum()),
        "sha256": dataset.sha256,
    }
    before = [dataclasses.asdict(ancestor) for ancestor in dataset.lineage]
    grew = ", ".join(f"{ancestor.episodes} episodes ({ancestor.sha256[:12]})" for ancestor in dataset.lineage)
    words = facts | ({"grew from": grew} if grew else {})
    return Told(words, then, facts | ({"before": before} if before else {}))


@tell.register(DataVerify)
def _verified(job: DataVerify, dataset: "Dataset") -> Told:
    return Told({"dataset": str(job.dataset), "sha256": dataset.sha256, "verdict": "whole"})


@tell.register(DataImport)
def _imported(job: DataImport, dataset: "Dataset") -> Told:
    summary = {"dataset": str(job.out), "episodes": len(dataset.lengths), "sha256": dataset.sha256}
    return Told(summary, spell(DataPreview(job.out)))


@tell.register(DataExport)
def _exported(job: DataExport, result: None) -> Told:
    return Told({"file": str(job.out), "bytes": job.out.stat().st_size})


def _judgement(found: "DatasetStats", job: DataStats) -> dict[str, str]:
    """How far pairs are apart, and whether that is worth learning from; nothing where no simulator judges."""
    if found.solved_share is None:
        return {"distances": _without_simulator(job, job.dataset)}
    near = found.solved_share > 0.2
    verdict = (
        "little moves between start and goal: a livelier policy gives better tasks" if near else "worth learning from"
    )
    return {
        "already solved": f"{found.solved_share:.1%}",
        "distance": f"{readable(found.distance)} success radii",
        "verdict": verdict,
    }


@tell.register(DataPreview)
def _previewed(job: DataPreview, found: "Preview") -> Told:
    from saltwm.disk.dataset import Dataset

    recipe = Dataset.open(job.dataset, verify="sizes").recipe
    then = Train(job.dataset, Path(f"runs/{recipe.world.environment}-salt"), "quick")
    return Told(dataclasses.asdict(found), None if recipe.is_held_out else spell(then))


@tell.register(DataStats)
def _measured(job: DataStats, found: "DatasetStats") -> Told:
    from saltwm.jobs.inspection import QUANTILES

    quantiles = ", ".join(f"{100 * q:g}" for q in QUANTILES)
    words = {
        "episodes": found.episodes,
        "pairs": f"{found.pairs} of a state and the one {found.offset_steps} steps later; five numbers are their "
        f"{quantiles} % quantiles",
        **_judgement(found, job),
        **{
            field.name: f"moves {readable(field.motion)}{field.unit and ' '}{field.unit}; at all in "
            f"{field.moving_share:.1%} of the steps; visits {field.coverage:.0%} of its range"
            for field in found.fields
        },
        "actions": f"mean {readable(found.action_mean)}; std {readable(found.action_std)}; from "
        f"{readable(found.action_min)} to {readable(found.action_max)}; {found.action_at_bound_share:.1%} at a bound",
        "picture": str(job.out),
    }
    return Told(words, plain=dataclasses.asdict(found) | {"picture": str(job.out)})


# --- learning --------------------------------------------------------------------------------------------------------


@tell.register(Train)
def _trained(job: Train, result: "TrainResult | None") -> Told | None:
    if result is None:
        return None
    plain = dataclasses.asdict(result)
    words = plain
    if not result.frames_per_second:
        words = {name: plain[name] for name in ("run", "checkpoint", "step", "metrics")}
        words["nothing_to_do"] = "all steps were done before"
    # A split by windows leaves no episode unseen.
    protocol: ProtocolName = "clean" if job.config().train.split == "episode" else "paper"
    then = Evaluate(str(job.out), job.dataset, protocol=protocol, out=RESULTS)
    return Told(words, _judged(then, Score(job.out, job.dataset)), plain)


def _judged(evaluation: Evaluate, score: Score) -> str:
    """The command that evaluates a run; the one that scores it offline where its world has no simulator.

    Data that were collected had one, a class of the user's which only the user can name.
    """
    from saltwm.disk.checkpoint import info_of
    from saltwm.envs import has_simulator

    environment = info_of(Path(evaluation.run)).world.environment
    if has_simulator(environment):
        return _spell_in(environment, evaluation)
    return _with_class("my_module:MyEnv", evaluation) if _was_collected(score.data) else spell(score)


def _spell_in(environment: str, job: Job) -> str:
    """The command of a job that acts in an environment; a class of the user's is named again.

    Its name in the run's files leads to no module.
    """
    from saltwm.envs import ENVIRONMENTS, users

    return _with_class("" if environment in ENVIRONMENTS else users.word_of(environment), job)


def _with_class(word: str, job: Job) -> str:
    named = ("--env", word) if word else ()
    return command_line("saltwm", *named, *shlex.split(spell(job))[1:])


def _was_collected(data: Path | None) -> bool:
    """Whether a simulator made the dataset; a file that is not there says nothing."""
    from saltwm.disk.durable import read_config
    from saltwm.disk.layout import RECIPE_FILE, Recipe

    file = None if data is None else data / RECIPE_FILE
    return file is not None and file.exists() and read_config(Recipe, file).source.kind == "collect"


def _without_simulator(job: Job, data: Path) -> str:
    """Why nobody knows distances, and the command that does where the user has a class."""
    if not _was_collected(data):
        return "not known: recordings have no simulator"
    return f"not known without the simulator; name its class: {_with_class('my_module:MyEnv', job)}"


@tell.register(Info)
def _described(job: Info, card: dict[str, Any]) -> Told:
    prior = card["action_prior"]
    shown = card | {"parameters": f"{card['parameters']:,}", "bytes": f"{card['bytes']:,}"}
    if (steps := shown.pop("steps_in_all", None)) is not None:
        shown["step"] = f"{card['step']} of {steps}"
    shown["other_than_preset"] = ", ".join(card.get("other_than_preset", ())) or ()
    shown["metrics"] = [{name: value} for name, value in card["metrics"].items()]  # a line each
    if not isinstance(prior, dict):
        return Told(shown, plain=card)
    known = (
        f"plans of {prior['plans_of_blocks']} blocks for goals up to {prior['goals_up_to_blocks']} blocks away; "
        f"explains {prior['explained_share_of_held_out_actions']:.1%} of the variance of held-out actions"
    )
    return Told(shown | {"action_prior": known}, plain=card)


@tell.register(Prior)
def _learnt(job: Prior, found: "PriorResult") -> Told:
    figures = found.held_out
    words = {
        "prior": found.prior,
        "seconds": round(found.seconds, 1),
        "on held-out episodes": f"{figures.explained:.1%} of the actions' variance explained; negative log likelihood "
        f"{figures.nll:.3f} (1.419 knows nothing); {figures.within_one_std:.1%} within one deviation (68.3 % is right)",
    }
    plain = {"prior": found.prior, "seconds": found.seconds, "held_out": dataclasses.asdict(figures)}
    then = with_best_search(Evaluate(str(job.run), job.data, out=RESULTS))
    return Told(words, _judged(then, Score(job.run, job.data)), plain)


# --- acting ----------------------------------------------------------------------------------------------------------


@tell.register(Evaluate)
def _evaluated(job: Evaluate, evaluation: "Evaluation") -> Told:
    if job.run == "random" or job.data is None:
        then = spell(Report(job.out))
    else:
        then = _spell_in(evaluation.environment, Diagnose(Path(job.run), job.data, job.out))
    return Told(results_table(job.out, [evaluation]), then, dataclasses.asdict(evaluation))


@tell.register(Suite)
def _evaluated_all(job: Suite, evaluations: "list[Evaluation]") -> Told:
    from saltwm.disk.records import read_cells, read_plan
    from saltwm.report.tables import json_means, success_rows

    cells = read_cells(job.out)
    plain = {"rows": to_plain(success_rows(cells)), "means": json_means(cells, read_plan(job.out))}
    return Told(results_table(job.out, evaluations), spell(Report(job.out)), plain)


OUTCOMES = {
    "budget": "not reached within the steps allowed",
    "solved-at-start": "reached at the start already",
    "world-ended": "not reached before the world ended the episode",
}
"""Words of the records that a person would have to look up."""


@tell.register(Play)
def _played(job: Play, played: Played) -> Told:
    record = played.outcome.record
    promised = {f"step {plan.step}": plan.elite_costs[-1] for plan in record.plans if plan.elite_costs}
    pictures = {"moving": str(played.moving), "strip": str(played.strip)}
    words = {
        "outcome": f"{OUTCOMES.get(record.reason, record.reason)}, {record.steps_taken} of "
        f"{played.tasks.protocol.budget_steps} steps",
        "planned with": played.search,
        "distance": _distances(played.tasks.world.environment, record.start_distance, record.final_distance),
        "promised_costs": promised,
    }
    plain = {
        "outcome": record.reason,
        "steps": record.steps_taken,
        "start_distance": record.start_distance,
        "final_distance": record.final_distance,
        "promised_costs": promised,
    }
    return Told(words | pictures, f"open {played.moving}", plain | pictures)


def _distances(environment: str, start: float, end: float) -> str:
    from saltwm.envs import env_class

    radius = env_class(environment).success_radius
    return f"{start:.2f} success radii at the start, {end:.2f} at the end{f' (1 is {radius})' if radius else ''}"


# --- scores ---------------------------------------------------------------------------------------------------------


@tell.register(Score)
def _scored(job: Score, found: "OfflineScore | Ordered") -> Told:
    from saltwm.jobs.scoring import Ordered

    if isinstance(found, Ordered):
        return Told(_order_in_words(found), plain=to_plain(found))
    low, high = found.rank_interval
    words: dict[str, Any] = {
        "pairs": f"{found.pairs} held-out pairs, {found.horizon_blocks} action blocks apart",
        "rank of the recorded actions": f"{found.rank:.3f} ({low:.3f} to {high:.3f}) among {found.candidates} plans "
        "from elsewhere; 0 is best, 0.5 is chance",
        "error against stillness": f"{found.error_against_stillness:.3f}; below 1 beats predicting that nothing moves",
    }
    if found.prior_nll is None:
        words["prior"] = "none; saltwm prior learns one"
    else:
        words["prior"] = f"{found.prior_nll:.3f} nats per number (1.419 without knowledge); "
        words["prior"] += f"{found.prior_within_one_std:.1%} within one deviation (68.3% if honest)"
    words["verdict"] = _score_in_words(found)
    return Told(words, plain=dataclasses.asdict(found))


def _score_in_words(found: "OfflineScore") -> str:
    """What the score can tell, docs/data.md: a model that has learnt nothing, and no more."""
    if found.rank_interval[1] >= 0.5 or found.error_against_stillness >= 1:
        return "it has learnt little yet: train it longer, or on more data"
    return "it has learnt what actions do; only a simulator or a robot tells how well it plans"


def _order_in_words(found: "Ordered") -> Any:
    """A line per model, best success first, and a line per figure of the score."""
    from rich.table import Table

    table = Table("model", "reached", "rank", "error against stillness", "prior nll", box=None, pad_edge=False)
    for one in sorted(found.models, key=lambda one: -one.success.successes / one.success.n):
        score, rate = one.score, one.success
        prior = "-" if score.prior_nll is None else f"{score.prior_nll:.3f}"
        error = f"{score.error_against_stillness:.3f}"
        table.add_row(one.model, f"{rate.successes}/{rate.n}", f"{score.rank:.4f}", error, prior)
    table.caption = "\n".join(
        f"{order.measure.replace('_', ' ')}: rank correlation with success "
        f"{'-' if order.correlation is None else f'{order.correlation:.2f}'}; "
        f"orders {order.agreeing} of {order.pairs} pairs of one environment as planning does"
        for order in found.orders
    )
    return table


# --- environments ----------------------------------------------------------------------------------------------------


@tell.register(EnvCheck)
def _checked(job: EnvCheck, found: "Checked") -> Told:
    words: dict[str, Any] = {"environment": found.environment}
    words |= {f.promise: f.found if f.kept else f"MISSING: {f.found}" for f in found.findings}
    recorded, planned = "collect, train, prior, diagnose, decode, score, explore", "evaluate, suite, play"
    if found.plans:
        words["verdict"] = f"every verb works: {recorded}, {planned}"
    elif found.records:
        words["verdict"] = f"it can be recorded and learnt from ({recorded}), not planned in ({planned}): see MISSING"
    else:
        words["verdict"] = "nothing works before what is MISSING for recording is there"
    verdict = {"records": found.records, "plans": found.plans}
    then = (
        command_line("saltwm", "collect", job.environment, "--out", f"data/{found.environment}")
        if found.records
        else None
    )
    return Told(words, then, plain=dataclasses.asdict(found) | verdict)


@tell.register(EnvList)
def _listed(job: EnvList, found: dict[str, str]) -> Told:
    return Told(found, "saltwm env check my_module:MyEnv")


# --- measuring -------------------------------------------------------------------------------------------------------


def _of_jacobians(diagnosis: "Diagnosis", probes: "Probes") -> dict[str, Any]:
    """What Jacobians say, where they were taken."""
    if not diagnosis.rho:
        return {"Jacobians": "not taken: the latent is too wide"}
    return {
        "growth of the propagation norm": round(diagnosis.propagation_norm[-1] / diagnosis.propagation_norm[0], 2),
        "largest rho_H": f"{max(diagnosis.rho):.1e}",
        "Jacobian varies with the state by": f"{probes.jacobian_spread:.1e}",
    }


@tell.register(Diagnose)
def _diagnosed(job: Diagnose, found: "Diagnosed") -> Told:
    from saltwm.report.tables import probe_scores

    diagnosis, probes = found.diagnosis, found.probes
    words = {
        "records": str(found.folder),
        "one-step error (share of the latents' spread)": round(diagnosis.one_step_error, 4),
        f"rollout error after {len(diagnosis.rollout_error)} steps": round(diagnosis.rollout_error[-1], 4),
        **_of_jacobians(diagnosis, probes),
        "effective rank": round(diagnosis.effective_rank, 1),
        "state read linearly from z (R2)": {probe.field: probe_scores(probe) for probe in probes.fields},
        "rank correlation of cost and true distance": _without_simulator(job, job.data)
        if probes.cost_order is None
        else probes.cost_order,
    }
    plain = {"diagnosis": to_plain(diagnosis), "probes": to_plain(probes), "training": to_plain(found.training)}
    return Told(words, spell(Report(job.out)), plain)


@tell.register(Decode)
def _decoded(job: Decode, found: "Decoded") -> Told:
    record = found.record
    first, last = record.times[record.context], record.times[-1]
    words = {
        "picture": str(found.picture),
        "decoder": f"{record.decoder}, {record.steps} steps on {record.frames} frames",
        f"pixel error on {record.stretches} held-out stretches": "mean squared, pixels in 0 .. 1",
        "  of the mean picture": sum(record.mean_mse) / len(record.mean_mse),
        "  of decoded true frames": sum(record.true_mse) / len(record.true_mse),
        f"  of decoded predictions, t = {first} and {last}": (record.predicted_mse[0], record.predicted_mse[-1]),
        "decoder draws better than the mean picture": record.tells_frames_apart,
    }
    return Told(words, spell(Report(job.out)), to_plain(record))


# --- reading ---------------------------------------------------------------------------------------------------------


@tell.register(Report)
def _reported(job: Report, page: Path) -> Told:
    return Told({"report": str(page)}, f"open {page} in a browser")


@tell.register(Film)
def _filmed(job: Film, films: list[Path]) -> Told:
    return Told({"filmed": [str(film) for film in films]})


@tell.register(Results)
def _documented(job: Results, files: list[Path]) -> Told:
    return Told({"up to date" if job.check else "written": [str(file) for file in files]})


@tell.register(Anatomy)
def _dissected(job: Anatomy, found: Dissected) -> Told:
    from saltwm.report.anatomy import anatomy_table

    plain = [dataclasses.asdict(pair) for pair in found.pairs]
    return Told(anatomy_table(found.pairs), f"open {found.page} in a browser", plain)


@tell.register(Doctor)
def _examined(job: Doctor, findings: list[Finding]) -> Told:
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for name in ("what", "found", "what to do"):
        table.add_column(name, overflow="fold")  # a word that is wider than its column is read whole
    for finding in findings:
        table.add_row(finding.what, finding.found, finding.remedy)
    return Told(table, plain=[dataclasses.asdict(finding) for finding in findings])


# --- models for others -----------------------------------------------------------------------------------------------


@tell.register(Ship)
def _shipped(job: Ship, made: Shipped) -> Told:
    known = "known" if made.shipment.data else "not at hand; name the training dataset with --data"
    words = {
        "shipped": str(job.out),
        "precision": made.shipment.precision,
        "bytes": sum(file.stat().st_size for file in job.out.rglob("*") if file.is_file()),
        "card": str(made.card),
        "recipe_of_the_data": known,
    }
    if made.held_out is None:
        return Told(words)
    then = made.lacking or Evaluate(str(job.out), made.held_out, protocol="clean", out=AGAIN)
    return Told(words, _spell_in(made.environment, then))


@tell.register(Card)
def _written(job: Card, card: Path) -> Told:
    return Told({"card": str(card)}, spell(Info(job.run)))


@tell.register(ImportWeights)
def _imported_weights(job: ImportWeights, found: "Imported") -> Told:
    words = {"run": str(job.out), "model": found.model, "tensors": f"{found.tensors} of {found.tensors}"}
    return Told(words, spell(Evaluate(str(job.out), job.data, protocol="paper", out=RESULTS)))


@tell.register(Export)
def _exported_weights(job: Export, found: dict[str, Any]) -> Told:
    return Told({"written": str(job.out), **found})


@tell.register(Demo)
def _demonstrated(job: Demo, found: Shelf | Shown) -> Told | None:
    if isinstance(found, Shelf):
        return _on_the_shelf(job, found)
    for item, played in found.shown:
        shown = _demonstration(item, played)
        then = Evaluate(str(spoken(item.checkpoint)), spoken(item.data), protocol="clean", out=AGAIN)
        _print(Told(_in_words(shown), spell(then), shown), job.json)
    for environment in found.not_drawn:
        say(f"{environment}: not shown, MuJoCo has no renderer here; saltwm doctor says what to do")
    return None


def _on_the_shelf(job: Demo, found: Shelf) -> Told:
    from rich.table import Table

    if not found.items:
        then = "saltwm reproduce two-room --preset quick --out work/demo"
        return Told(f"nothing is shipped under {spoken(found.directory)}", then, found.facts)
    table = Table(box=None, pad_edge=False)
    table.add_column("checkpoint", overflow="fold", no_wrap=True)  # whole, so that it can be copied
    for name in ("environment", "model", "parameters", "MB"):
        table.add_column(name)
    for item, fact in zip(found.items, found.facts, strict=True):
        parameters, size = f"{fact['parameters'] / 1e6:.2f} M", f"{fact['bytes'] / 1e6:.1f}"
        table.add_row(str(spoken(item.checkpoint)), item.environment, item.model, parameters, size)
    first = next((item for item in found.items if item.model == job.model), found.items[0])
    shown = dataclasses.replace(job, environment=first.environment, model=first.model)
    return Told(table, spell(shown), found.facts)


def _demonstration(item: "Item", played: Played) -> dict[str, Any]:
    """What happened; distances are in success radii, costs the mean elite costs of the first plan and the last."""
    from saltwm.envs import env_class

    record = played.outcome.record
    first, last = record.plans[0].elite_costs, record.plans[-1].elite_costs
    return {
        "environment": item.environment,
        "model": item.model,
        "search": played.search,
        "task": record.task,
        "reached": record.success,
        "steps": record.steps_taken,
        "budget_steps": played.tasks.protocol.budget_steps,
        "start_distance": record.start_distance,
        "final_distance": record.final_distance,
        "success_radius": env_class(item.environment).success_radius,
        "cost_before_search": first[0],
        "cost_after_search": first[-1],
        "cost_at_the_end": last[-1],
        "moving": str(played.moving),
        "strip": str(played.strip),
        "seconds": played.seconds,
    }


def _in_words(shown: dict[str, Any]) -> dict[str, Any]:
    """A demonstration as a person reads it."""
    verdict = "reached" if shown["reached"] else "not reached"
    before, after = shown["cost_before_search"], shown["cost_after_search"]
    # A search with a prior gives up some of the cost for actions that are likelier.
    why = " (for likelier actions)" if after > before else ""
    return {
        shown["environment"]: f"{shown['model']}, held-out task {shown['task']}",
        "planned with": shown["search"],
        "goal": f"{verdict} after {shown['steps']} of {shown['budget_steps']} steps",
        "distance": _distances(shown["environment"], shown["start_distance"], shown["final_distance"]),
        "predicted cost": f"{before:.3g} before the search, {after:.3g} after it{why}, "
        f"{shown['cost_at_the_end']:.3g} by the last plan",
        "moving": shown["moving"],
        "strip": shown["strip"],
        "seconds": round(shown["seconds"], 1),
    }


@tell.register(Reproduce)
def _reproduced(job: Reproduce, nothing: None) -> Told:
    return Told(results_table(job.results), f"open {job.out / 'report' / 'index.html'} in a browser")


# --- speed -----------------------------------------------------------------------------------------------------------


@tell.register(Bench)
def _benchmarked(job: Bench, found: "Measured | Efficiency") -> Told:
    from rich.console import Group

    if isinstance(found, Measured):
        tables = [_figures(figures) for figures in found.figures.values()]
        written = [f"written: {', '.join(map(str, found.files))}"] if found.files else []
        return Told(Group(*tables, *written), plain=plain(found.figures))
    record = to_plain(found)
    rows = [aligned({k: v for k, v in row.items() if k != "planning"}) for row in record["predictors"]]
    ending = found.how if job.out is None else f"written: {job.out / 'efficiency.json'}"
    return Told(Group(*rows, ending), plain=record)


def _figures(figures: "list[Figure]") -> Any:
    from rich.table import Table

    table = Table("what", "measured", "wanted", "", "note", box=None, header_style="bold")
    table.columns[1].justify = "right"
    for figure in figures:
        wanted = [f">= {figure.at_least:g}"] if figure.at_least is not None else []
        wanted += [f"<= {figure.at_most:g}"] if figure.at_most is not None else []
        verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
        table.add_row(figure.what, f"{figure.value:.3g} {figure.unit}", " ".join(wanted), verdict, figure.note)
    return table


# --- studies ---------------------------------------------------------------------------------------------------------


@tell.register(Study)
def _studied(job: Study, result: Any) -> Told:
    plain = None if result is None else [dataclasses.asdict(one) for one in result]
    if job.name is None:
        return Told(_study_list(result, _places_of(job)), "saltwm study NAME --data DATA --runs RUNS", plain)
    if job.dry_run:
        return Told("\n".join(step.command for step in result) or "nothing is left to do", None, plain)
    return Told(
        {"study": job.name, "records": str(job.results)}, f"{command_line('saltwm', 'results', job.results)} shows it"
    )


def _places_of(job: Study) -> str:
    """Where a study looks for what is done, and which of these folders are not there."""
    here = [f"{folder}{'' if folder.is_dir() else ' (not there)'}" for folder in (job.results, job.data)]
    return f"records in {here[0]}, data in {here[1]}"


def _study_list(listed: Any, places: str) -> Any:
    from rich.console import Group
    from rich.table import Table

    from saltwm.report.tables import duration

    table = Table("study", "in the paper", "asks", "done", "left, by the records", box=None, header_style="bold")
    for one in listed:
        left = duration(one.seconds_left) if one.seconds_left else ""
        left += (
            f"{' + ' if left else ''}{one.unknown} {'step' if one.unknown == 1 else 'steps'} not timed yet"
            if one.unknown
            else ""
        )
        table.add_row(one.name, one.place, one.question, f"{one.done}/{one.steps}", left or "nothing")
    return Group(places, table)
