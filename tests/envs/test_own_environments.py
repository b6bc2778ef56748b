"""Environments outside the package: named as module:Class, offered by a package, adapted from gymnasium."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from saltwm.cli.telling import _judged, _spell_in, _without_simulator
from saltwm.data.fields import fields_of
from saltwm.disk import checkpoint, durable
from saltwm.disk.dataset import Dataset
from saltwm.envs import ENVIRONMENTS, adapt, env_class, introduce, make_env, spelled, users
from saltwm.envs.base import PlanningEnv, StateField, read_fields, spell_fields
from saltwm.envs.check import check_environment
from saltwm.ground.errors import DamagedError, ShapeError, UsageError
from saltwm.jobs.collect import Collect
from saltwm.jobs.data import DataStats
from saltwm.jobs.evaluate import Evaluate
from saltwm.jobs.measures import Diagnose
from saltwm.jobs.score import Score
from saltwm.report.tables import ENVIRONMENT_NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
SLIDE = next(block for block in PAGE.split("```python\n")[1:] if "class Slide" in block).split("```")[0]


class Ball(gymnasium.Env[Any, Any]):
    """An ordinary gymnasium environment: bounds of its own, oblong pictures, an end, no way back to a state."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(np.array([0.0, -2.0], np.float32), np.array([0.5, 2.0], np.float32))
        self.place = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 0, 2)
        return self.place.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = self.place + 0.1 * np.asarray(action, np.float64)
        return self.place.astype(np.float32), 0.0, bool(self.place[0] > 0.5), False, {}

    def render(self) -> Any:
        frame = np.zeros((40, 80, 3), np.uint8)
        column, row = (np.clip((self.place + 2) / 4, 0, 0.99) * [80, 40]).astype(int)
        frame[row, column:] = 255
        return frame


class Restorable(Ball):
    """The same with a state."""

    def get_state(self) -> Any:
        return self.place.copy()

    def set_state(self, state: Any) -> None:
        self.place = np.array(state)


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with a module of the user's, as the working directory; nothing of it stays."""
    (tmp_path / "slides.py").write_text(SLIDE + "\n\nNUMBER = 3\n\n\nclass Half(PlanningEnv):\n    name = 'half'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(users.VARIABLE, "")
    monkeypatch.setattr(users, "_entered", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    for module in ("slides", "slower", "buffered"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return "slides:Slide"


def test_a_class_named_by_the_user_is_collected_by_many_processes(own_module: str, tmp_path: Path) -> None:
    dataset = Collect(own_module, tmp_path / "data", 6, image_size=16, episodes_per_part=2, workers=2).do()
    assert dataset.world.environment == "slide"
    assert dataset.recipe.source.state_fields == "position 1 m"
    assert fields_of(dataset) == (StateField("position", 0, 1, "m"),)
    assert os.environ[users.VARIABLE] == own_module


def test_a_name_in_a_file_imports_nothing(own_module: str, tmp_path: Path) -> None:
    """A dataset of a user's environment opens and trains without its module, and says how to bring it in."""
    Collect(own_module, tmp_path / "data", 4, image_size=16, workers=1).do()
    code = (
        "import sys; from saltwm.disk.dataset import Dataset; from saltwm.envs import env_class\n"
        "world = Dataset.open('data').world; assert 'slides' not in sys.modules\n"
        "for name in (world.environment, 'slides:Slide'):\n"
        "    try: env_class(name)\n"
        "    except Exception as error: print(type(error).__name__, error.remedy, 'slides' in sys.modules)\n"
    )
    environment = {**os.environ, users.VARIABLE: ""}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.splitlines() == ["UsageError name your environment False"] * 2


def test_the_command_line_takes_a_class_before_any_verb(own_module: str, tmp_path: Path) -> None:
    Collect(own_module, tmp_path / "data", 4, image_size=16, workers=1).do()
    environment = {**os.environ, users.VARIABLE: ""}

    def stats(*before: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "saltwm", *before, "data", "stats", "data", "--json"]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    named = stats("--env", own_module)
    assert named.returncode == 0, named.stderr
    assert json.loads(named.stdout)["solved_share"] is not None


def test_a_process_that_inherits_the_variable_knows_the_class(own_module: str) -> None:
    """The explorer's worker is such a process: it asks whether there is a simulator before it makes one."""
    code = "from saltwm.envs import has_simulator; print(has_simulator('slide'), has_simulator('half'))"
    environment = {**os.environ, users.VARIABLE: own_module}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.split() == ["True", "False"]


def test_the_next_command_names_the_user_s_class_again_or_asks_for_an_offline_score(
    own_module: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = checkpoint.find_checkpoint(run)
    info = durable.read_json(trained / checkpoint.INFO_FILE)
    info["world"]["environment"] = "slide"
    with durable.publish_directory(tmp_path / "model") as folder:
        durable.write_json(folder / checkpoint.INFO_FILE, info)

    def after(model: Path) -> str:
        return _judged(Evaluate(str(model), Path("data")), Score(model, Path("data")))

    assert after(tmp_path / "model") == f"saltwm score {tmp_path / 'model'} --data data"
    data = Collect(own_module, tmp_path / "collected", 4, image_size=16, workers=1).do().path
    users._entered.clear()
    monkeypatch.setenv(users.VARIABLE, "")
    evaluation, score = Evaluate(str(tmp_path / "model"), data), Score(tmp_path / "model", data)
    assert _judged(evaluation, score).startswith("saltwm --env my_module:MyEnv evaluate ")
    assert "--env my_module:MyEnv data stats" in _without_simulator(DataStats(data), data)
    introduce(own_module)
    assert _spell_in("slide", Diagnose(run, data)).startswith(f"saltwm --env {own_module} diagnose {run}")
    assert after(tmp_path / "model") == f"saltwm --env {own_module} evaluate {tmp_path / 'model'} --data data"
    assert after(run).startswith(f"saltwm evaluate {run}")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("no_such:Slide", "no module 'no_such' in"),
        ("slides:Slid", "slides has no 'Slid'; it has Slide, Half"),
        ("slides:NUMBER", "expected a class that extends saltwm.envs.PlanningEnv, found int"),
        ("slides:Half", "slides:Half: lacks state_dim, action_dim, max_episode_steps, _advance"),
        ("slides:", "expected module:Class, such as my_module:MyEnv"),
        ("json:JSONEncoder", "expected a class that extends saltwm.envs.PlanningEnv, found JSONEncoder"),
        (
            "gymnasium:Env",
            "a plain gymnasium environment; write MyEnv = saltwm.envs.adapt(Env, name='my-env') into its module, "
            "and name gymnasium:MyEnv",
        ),
    ],
)
def test_what_is_not_an_environment_is_refused_in_one_line(own_module: str, word: str, said: str) -> None:
    with pytest.raises(UsageError) as refusal:
        introduce(word)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_name_of_the_package_cannot_be_taken(own_module: str, tmp_path: Path) -> None:
    (tmp_path / "thief.py").write_text(SLIDE.replace('name = "slide"', 'name = "two-room"'))
    with pytest.raises(UsageError, match="the name 'two-room' is that of an environment of saltwm"):
        introduce("thief:Slide")
    assert env_class("two-room").__name__ == "TwoRoom"


def test_two_classes_of_one_name_are_refused_by_both_words(
    own_module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would take turns: data of one would be those of the other."""
    (tmp_path / "slower.py").write_text(SLIDE.replace("0.1 *", "0.03 *"))
    introduce(own_module)
    with pytest.raises(UsageError, match="slower:Slide: the name 'slide' is that of slides:Slide"):
        introduce("slower:Slide")
    assert os.environ[users.VARIABLE] == own_module
    assert [users.find("slide").__module__ for _ in range(3)] == ["slides"] * 3
    users._entered.clear()
    monkeypatch.setenv(users.VARIABLE, "slower:Slide")
    with pytest.raises(UsageError, match="the name 'slide' is that of slides:Slide"):
        Collect(own_module, tmp_path / "data", 4, image_size=16, workers=1).do()
    assert not (tmp_path / "data").exists()


def test_a_class_may_have_two_words_and_may_be_loaded_again(own_module: str, tmp_path: Path) -> None:
    (tmp_path / "slower.py").write_text("from slides import Slide as Same\n")
    assert introduce(own_module) == introduce("slower:Same") == "slide"
    users._entered.clear()
    os.environ[users.VARIABLE] = ""
    introduce(own_module)
    importlib.reload(sys.modules["slides"])
    introduce(own_module)
    assert env_class("slide") is sys.modules["slides"].Slide


BUFFERED = """
import numpy as np
from slides import Slide


class Buffered(Slide):
    name = "buffered"
    restores = False
    _frames = {}

    def draw(self, size):
        frame = self._frames.setdefault(size, np.zeros((size, size, 3), np.uint8))
        frame[:] = super().draw(size)
        return frame
"""


def test_frames_that_are_drawn_into_one_array_are_kept_apart(own_module: str, tmp_path: Path) -> None:
    (tmp_path / "buffered.py").write_text(BUFFERED)
    dataset = Collect("buffered:Buffered", tmp_path / "data", 4, image_size=16, workers=1).do()
    env = make_env("buffered", image_size=16)
    env._restore(dataset.states(0)[0].copy())
    np.testing.assert_array_equal(dataset.read_frames(np.array([0]), np.array([0]))[0], env.draw(16))
    (frames,) = (one for one in check_environment(type(env), 16).findings if one.promise == "frames show what moves")
    assert frames.kept


def test_an_installed_package_offers_an_environment_by_name(own_module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, "")
    offer = importlib.metadata.EntryPoint("slide", own_module, users.GROUP)
    monkeypatch.setattr(users, "entry_points", lambda group: [offer] if group == users.GROUP else [])
    assert "slides" not in sys.modules
    assert make_env("slide").name == "slide"
    assert users.names() == ["slide"]


@pytest.mark.parametrize(("word", "name"), [("pusht", "push-t"), ("TwoRoom", "two-room"), ("ogbcube", "cube")])
def test_other_spellings_are_understood(word: str, name: str) -> None:
    assert introduce(word) == spelled(word) == name
    assert env_class(word) is env_class(name)


# --- adapted ---------------------------------------------------------------------------------------------------------


def test_an_adapted_environment_without_a_state_is_recorded_with_its_own_bounds(tmp_path: Path) -> None:
    ball = adapt(Ball, name="ball", max_episode_steps=30)
    env = ball(image_size=16)
    np.testing.assert_array_equal(env.action_space.low, np.array([0.0, -2.0], np.float32))
    assert not ball.restores
    found = check_environment(ball, 16)
    assert found.records
    assert not found.plans
    missing = {finding.promise for finding in found.findings if not finding.kept}
    assert missing == {
        "a stored state is restored exactly",
        "distances are those of states alone",
        "recorded actions reach their own goal",
    }
    env.reset(seed=0)
    while not env.over:
        env.step(env.action_space.high)
    assert env.draw(40).shape == (40, 40, 3)
    assert env.draw(40)[:10].max() == 0  # 40 x 80 has bars above and below
    with pytest.raises(UsageError, match="cannot be put into a stored state"):
        env.restore(np.zeros(2))


def test_an_adapted_environment_with_a_state_keeps_every_promise() -> None:
    def distance(states: Any, goals: Any) -> Any:
        return np.linalg.norm(states - goals, axis=1) / 0.1

    ball = adapt(Restorable, name="ball", distance=distance, fields=(StateField("place", 0, 2, "m"),))
    found = check_environment(ball, 16)
    assert found.plans, found
    assert ball.restores


class Returning(Ball):
    """Ends where it began, as its frames tell."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        found = super().reset(seed=seed, options=options)
        self.steps, self.began = 0, self.place.copy()
        return found

    def step(self, action: Any) -> Any:
        self.steps += 1
        found = super().step(action)
        if self.steps == 40:
            self.place = self.began.copy()
        return found


class Still(Ball):
    """The negative control: a picture that shows nothing."""

    def render(self) -> Any:
        return np.zeros((40, 80, 3), np.uint8)


@pytest.mark.parametrize(("kind", "kept"), [(Returning, True), (Still, False)])
def test_frames_show_what_moves_wherever_the_episode_ends(kind: type[Ball], kept: bool) -> None:
    found = check_environment(adapt(kind, name="ball", policies={"aside": lambda env, rng: np.array([0, 2])}), 16)
    (frames,) = (finding for finding in found.findings if finding.promise == "frames show what moves")
    assert frames.kept == kept, frames


def test_a_state_that_forgets_something_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a simulator with momentum whose state is the place alone."""

    class Momentum(Restorable):
        speed = np.zeros(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.speed = np.zeros(2)
            return super().reset(seed=seed, options=options)

        def step(self, action: Any) -> Any:
            self.speed = 0.9 * self.speed + np.asarray(action, np.float64)
            return super().step(self.speed)

    found = check_environment(adapt(Momentum, name="momentum", distance=lambda s, g: np.abs(s - g).max(axis=1)), 16)
    (restoring,) = (finding for finding in found.findings if "restored" in finding.promise)
    assert "the simulator remembers more than state()" in restoring.found
    assert found.records
    assert not found.plans


class Holding:
    """A collecting policy that holds its push for two steps, and nothing from one episode to the next."""

    def __init__(self, env: Any, rng: np.random.Generator) -> None:
        self.rng, self.pushes = rng, []

    def __call__(self) -> Any:
        if len(self.pushes) % 2 == 0:
            self.pushes.append(self.rng.uniform([0, -2], [0.5, 2]))
        else:
            self.pushes.append(self.pushes[-1])
        return self.pushes[-1]


def test_a_policy_with_a_memory_is_a_class_that_is_made_for_each_episode() -> None:
    assert check_environment(adapt(Ball, name="ball", policies={"holding": Holding}), 16).records
    env = adapt(Ball, name="ball", policies={"holding": Holding})(image_size=16)
    act = env.policy("holding", np.random.default_rng(0))
    one, same, other = act(), act(), act()
    assert one.dtype == np.float32
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(same, other)


def test_a_policy_that_remembers_the_episode_before_is_found() -> None:
    pushes: list[Any] = []

    def clinging(env: Any, rng: np.random.Generator) -> Any:
        pushes.append(pushes[-1] if pushes and rng.uniform() < 0.9 else rng.uniform([0, -2], [0.5, 2]))
        return pushes[-1]

    found = check_environment(adapt(Ball, name="ball", policies={"clinging": clinging}), 16)
    (seeds,) = (finding for finding in found.findings if "seed" in finding.promise)
    assert not seeds.kept
    assert "its policy remembers the episode before" in seeds.found


def test_mujoco_environments_of_gymnasium_are_restored_bit_for_bit() -> None:
    reacher = adapt("Reacher-v5", name="gym-reacher", distance=lambda s, g: np.abs(s - g)[:, 1:3].max(axis=1) / 0.05)
    found = check_environment(reacher, 32)
    assert found.plans, found
    assert reacher.max_episode_steps == 50


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"action_space": gymnasium.spaces.Discrete(3)}, UsageError, "actions are Discrete"),
        ({"action_space": gymnasium.spaces.Box(-np.inf, np.inf, (2,))}, UsageError, "no finite bounds"),
        ({"render": lambda: None}, ShapeError, "frame: expected uint8"),
        ({"render": lambda: np.zeros((3, 40, 40), np.uint8)}, ShapeError, "channels come last"),
        ({"render": lambda: np.zeros((40, 40, 3))}, ShapeError, "found float64"),
    ],
)
def test_what_cannot_be_adapted_says_why(change: dict[str, Any], error: type[Exception], said: str) -> None:
    def make() -> Ball:
        ball = Ball()
        vars(ball).update(change)
        return ball

    with pytest.raises(error, match=said):
        adapt(make, name="odd")


def test_an_id_that_gymnasium_does_not_know_is_refused() -> None:
    with pytest.raises(UsageError, match="gymnasium cannot make NoSuchWorld-v0"):
        adapt("NoSuchWorld-v0", name="none")


# --- what environments say of themselves ------------------------------------------------------------------------------


def test_titles_are_those_of_the_report() -> None:
    assert {name: env_class(name).title for name in ENVIRONMENTS} == ENVIRONMENT_NAMES


def test_fields_survive_being_written_in_a_line() -> None:
    for name in ENVIRONMENTS:
        assert read_fields(spell_fields(env_class(name).state_fields)) == env_class(name).state_fields
    with pytest.raises(DamagedError, match="expected 'NAME SIZE UNIT"):
        read_fields("angle rad")


def test_a_dataset_of_an_unknown_environment_still_has_a_field(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    (known,) = fields_of(dataset)
    assert known.name == "agent_position"
    monkeypatch.setattr("saltwm.data.fields.env_class", lambda name: introduce("no_such:Env"))
    assert fields_of(dataset) == (StateField("state", 0, 2),)


def test_the_base_class_is_public() -> None:
    import saltwm.envs

    assert saltwm.envs.PlanningEnv is PlanningEnv
