"""Whether an environment keeps its promises, tried rather than read: what is missing, and what works without it."""

from dataclasses import dataclass

import numpy as np

from saltwm.envs.base import Action, PlanningEnv, State
from saltwm.ground.errors import SaltError
from saltwm.ground.rng import stream

STEPS = 40
OFFSET = 10
RECORDING = "collect"
PLANNING = "evaluate"


@dataclass(frozen=True)
class Finding:
    """One promise: what was found, and whether it is kept."""

    promise: str
    found: str
    kept: bool
    needed_to: str
    """RECORDING or PLANNING."""


@dataclass(frozen=True)
class Checked:
    """All findings about one environment."""

    environment: str
    findings: tuple[Finding, ...]

    @property
    def records(self) -> bool:
        """Whether episodes of it can be collected, and models trained on them."""
        return all(finding.kept for finding in self.findings if finding.needed_to == RECORDING)

    @property
    def plans(self) -> bool:
        """Whether tasks in it can be set, planned and judged."""
        return self.records and all(finding.kept for finding in self.findings)


def check_environment(cls: type[PlanningEnv], image_size: int = 64) -> Checked:
    """Try one episode of the class, again and from the middle."""
    env = cls(image_size=image_size)
    try:
        findings = [_fields(env), _bounds(env)]
        recorded = _recorded(env, findings)
        if recorded is not None:
            states, actions = recorded
            findings += [_seeds(env, states, actions), _frames(env)]
            findings += [_restoring(env, cls, states, actions), _distance(env, states)]
            findings.append(_own_actions(env, states, actions))
    finally:
        env.close()
    return Checked(cls.name, tuple(findings))


def _episode(env: PlanningEnv, seed: int) -> tuple[State, Action]:
    state, _ = env.reset(seed=seed)
    act = env.policy(env.policies[0], stream(seed, "policy"))
    states: list[State] = [state]
    actions: list[Action] = []
    while len(actions) < min(STEPS, env.max_episode_steps) and not env.over:
        actions.append(act())
        states.append(env.step(actions[-1])[0])
    return np.array(states), np.array(actions)


def _recorded(env: PlanningEnv, findings: list[Finding]) -> tuple[State, Action] | None:
    """An episode of the default policy; where the environment breaks down, a finding in its place."""
    try:
        states, actions = _episode(env, seed=1)
    except (SaltError, TypeError, ValueError, AttributeError, IndexError) as error:
        findings.append(Finding("an episode runs", f"{type(error).__name__}: {error}", False, RECORDING))
        return None
    sound = states.dtype == np.float64 and bool(np.isfinite(states).all())
    words = f"{len(actions)} steps; states {states.dtype} [{states.shape[1]}]"
    words += "" if sound else "; expected finite float64"
    findings.append(Finding("an episode runs", words, sound, RECORDING))
    return states, actions


def _fields(env: PlanningEnv) -> Finding:
    ends = [0, *(field.stop for field in env.state_fields)]
    whole = [field.start for field in env.state_fields] == ends[:-1] and ends[-1] == env.state_dim
    words = ", ".join(f"{field.name} {field.unit}".strip() for field in env.state_fields)
    return Finding("state fields name each number once", words, whole, RECORDING)


def _bounds(env: PlanningEnv) -> Finding:
    low, high = env.action_space.low, env.action_space.high
    sound = bool(np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all())
    return Finding("actions have finite bounds", f"{low.tolist()} to {high.tolist()}", sound, RECORDING)


def _seeds(env: PlanningEnv, states: State, actions: Action) -> Finding:
    again, again_actions = _episode(env, seed=1)
    same = np.array_equal(again, states) and np.array_equal(again_actions, actions)
    other = not np.array_equal(_episode(env, seed=2)[0][0], states[0])
    words = "the same seed gives the same episode, another seed another start"
    if not same:
        words = "the same seed gives another episode: the environment or its policy remembers the episode before, "
        words += "or draws from randomness of its own"
    elif not other:
        words = "every seed gives the same start: data would show one place only"
    return Finding("an episode is a function of its seed", words, same and other, RECORDING)


def _frames(env: PlanningEnv) -> Finding:
    promise = "frames show what moves"
    try:
        env.reset(seed=1)
        # Copies, here and below: an environment may draw each frame into the array of the one before.
        frames, small = [np.array(env.render())], np.array(env.draw(16))
        act = env.policy(env.policies[0], stream(1, "policy"))
        for _ in range(min(STEPS, env.max_episode_steps)):
            env.step(act())
            frames.append(np.array(env.render()))
            if env.over:
                break
    except SaltError as error:
        return Finding(promise, str(error), False, RECORDING)
    size = env.image_size
    for frame, side in ((small, 16), *((frame, size) for frame in frames)):
        if frame.dtype != np.uint8 or frame.shape != (side, side, 3):
            words = f"expected uint8 [{side}, {side}, 3], found {frame.dtype} {list(frame.shape)}"
            return Finding(promise, words, False, RECORDING)
    changed = max(float((frame != frames[0]).any(axis=2).mean()) for frame in frames)
    words = f"uint8 [{size}, {size}, 3]; up to {changed:.1%} of the pixels change in an episode"
    return Finding(promise, words, changed > 0, RECORDING)


def _restoring(env: PlanningEnv, cls: type[PlanningEnv], states: State, actions: Action) -> Finding:
    promise = "a stored state is restored exactly"
    if not env.restores:
        return Finding(promise, "it has no state to restore; its observation is recorded instead", False, PLANNING)
    fresh = cls(image_size=env.image_size)
    try:
        for start in (0, len(actions) // 3, 2 * len(actions) // 3):
            for one, who in ((env, "it"), (fresh, "a fresh one")):
                one.restore(states[start])
                for step in range(start, min(start + OFFSET, len(actions))):
                    one.step(actions[step])
                    if not np.array_equal(one.state(), states[step + 1]):
                        off = float(np.abs(one.state() - states[step + 1]).max())
                        words = f"{who} restored at step {start} is {off:.3g} off at step {step + 1}"
                        return Finding(promise, f"{words}: the simulator remembers more than state()", False, PLANNING)
    finally:
        fresh.close()
    return Finding(promise, "the same actions give the same states, bit for bit, in a fresh one too", True, PLANNING)


def _distance(env: PlanningEnv, states: State) -> Finding:
    promise = "distances are those of states alone"
    if not env.measures:
        return Finding(promise, "it has no goal distance", False, PLANNING)
    goals = np.roll(states, OFFSET, axis=0)
    try:
        found = env.goal_distance(states, goals)
        env.reset(seed=3)
        again, same = env.goal_distance(states, goals), env.goal_distance(states, states)
    except (SaltError, TypeError, ValueError, IndexError) as error:
        return Finding(promise, f"{type(error).__name__}: {error}", False, PLANNING)
    if found.shape != (len(states),):
        words = f"expected one number per pair [{len(states)}], found {list(found.shape)}"
        return Finding(promise, words, False, PLANNING)
    sound = bool(np.isfinite(found).all() and (found >= 0).all())
    if not (sound and np.array_equal(found, again) and (same < 1).all()):
        words = "negative or not finite" if not sound else "another after a reset, or a state does not reach itself"
        return Finding(promise, words, False, PLANNING)
    near = float((found < 1).mean())
    return Finding(promise, f"{near:.0%} of pairs {OFFSET} steps apart are reached at the start", True, PLANNING)


def _own_actions(env: PlanningEnv, states: State, actions: Action) -> Finding:
    promise = "recorded actions reach their own goal"
    if not (env.restores and env.measures):
        return Finding(promise, "cannot be tried without the two above", False, PLANNING)
    goal = min(OFFSET, len(actions))
    env.reset(seed=0, options={"state": states[0], "goal": states[goal]})
    reached = False
    for action in actions[:goal]:
        reached = env.step(action)[2]
    return Finding(promise, "yes" if reached else f"not after {goal} steps", reached, PLANNING)
