"""What a run is: frozen dataclasses. Kinds are words from a closed list; no file ever names code."""

from dataclasses import dataclass, field
from typing import Literal

from saltwm.ground.identity import Memo
from saltwm.ground.strict_json import IF_SET, LATER

ModelName = str  # a word of model/traits.py, which this ring does not see
ObjectiveName = Literal["rollout", "one-step"]
Variant = Literal["paper", "clean"]
ProtocolName = Literal["paper", "clean", "long"]
PrecisionName = Literal["32-true", "64-true", "bf16-mixed"]
RenderQuality = Literal["fast", "soft", "full"]


# --- the world ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorldSpec:
    """What pixels and actions mean: the part of an environment that a dataset and a checkpoint must share.

    Three of the environments have two-dimensional actions, so shapes alone cannot tell them apart.
    """

    environment: str
    """Name of the environment, e.g. two-room."""
    action_dim: int
    """Numbers in one raw action."""
    image_size: int = 64
    """Height and width of a frame in pixels."""
    render: RenderQuality = "fast"
    """full: as the benchmark looks; fast: no shadows, reflections or multisampling."""
    renderer: str = "numpy"
    """What drew the frames: numpy, egl, osmesa, imported."""


# --- the model ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncoderConfig:
    """Frames to latents. The defaults are the paper's ViT-Tiny (App. B.2)."""

    kind: Literal["vit", "conv", "conv-vit", "dinov2"] = "vit"
    """vit: patches and blocks; conv: strided convolutions in their place; conv-vit: convolutions before the blocks."""
    patch_size: int = 14
    """vit: side of a patch in pixels."""
    width: int = 192
    """Features per token, and of what the projection head receives."""
    depth: int = 12
    """Transformer blocks (vit, conv-vit)."""
    heads: int = 3
    """Attention heads per block."""
    mlp_dim: int = 768
    """Feed-forward width of a block."""
    channels: tuple[int, ...] = ()
    """conv, conv-vit: output channels of each strided convolution; each halves the image."""
    projection_dim: int = 2048
    """Hidden width of the projection head."""
    grid: int | None = field(default=None, metadata=IF_SET)
    """dinov2: patches along a side; frames are resized to that many."""
    weights_sha256: str | None = field(default=None, metadata=IF_SET)
    """dinov2: of the file with its frozen weights."""


@dataclass(frozen=True)
class AffineConfig:
    """The state-affine transition, eq. 8."""

    modes: int = 16
    """R, the number of modulation matrices N_r (App. B.3); 0 leaves the shared A0 alone (App. F.1)."""
    spectral: bool = True
    """A0 = U diag(tanh s) V^T with all singular values below 1; off: a dense A0 (App. C.4)."""
    memory: bool = field(default=False, metadata=LATER)
    """Affine in [z_t, z_t - z_{t-1}, c_{t-1}] instead of z_t: two pictures and the action between them show motion."""


@dataclass(frozen=True)
class TransformerConfig:
    """LeWM's predictor; the defaults are its published sizes."""

    window: int = 3
    """Frames of history it attends to."""
    depth: int = 6
    """Blocks."""
    heads: int = 16
    """Attention heads."""
    head_dim: int = 64
    """Features per head."""
    mlp_dim: int = 2048
    """Feed-forward width."""
    dropout: float = 0.1
    """Dropout in training."""
    projection_dim: int = 2048
    """Hidden width of the predictor's projection head."""


@dataclass(frozen=True)
class ModelConfig:
    """A world model: encoder, action encoder and one of the two transitions."""

    model: ModelName = "salt"
    """salt: state-affine transition; lewm: transformer predictor; or another of model/traits.py."""
    latent_dim: int = 192
    """d, the size of z and of the action condition c (App. B.2)."""
    frameskip: int = 5
    """Raw actions in one action block, and environment steps between two frames (App. B.4)."""
    smoothed_dim: int = 10
    """Width of the action encoder's first, linear layer."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    affine: AffineConfig = field(default_factory=AffineConfig)
    transformer: TransformerConfig = field(default_factory=TransformerConfig)


# --- learning ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is minimised: prediction + lambda * SIGReg (eq. 10), or prediction + another regulariser."""

    objective: ObjectiveName = "rollout"
    """rollout: eq. 9, predictions fed back; one-step: eq. 1, predictions from encoded states."""
    rollout_steps: int = 5
    """K, supervised predictions per rollout (App. B.4)."""
    starts: int = 1
    """Rollouts per window, from each of its first frames: a window has K + starts frames, encoded once."""
    sigreg_weight: float = 0.09
    """lambda (App. B.2)."""
    sigreg_knots: int = 17
    """Integration points of the characteristic function (App. B.2)."""
    sigreg_projections: int = 1024
    """Random directions per step (App. B.2)."""
    regulariser: str | None = field(default=None, metadata=IF_SET)
    """Another objective's terms in SIGReg's place: a row of losses/table.py, or the module:function of a user's own."""
    weights: dict[str, float] | None = field(default=None, metadata=IF_SET)
    """Weights of its terms that are not the published ones."""

    @property
    def word(self) -> str:
        """What a command or a table calls it."""
        return self.regulariser or self.objective

    @property
    def window_blocks(self) -> int:
        """Action blocks of a window; one frame stands between two of them and at both ends."""
        return self.rollout_steps + self.starts - 1


@dataclass(frozen=True)
class TrainConfig:
    """How it is learnt. The defaults are the paper's (App. B.2)."""

    batch_size: int = 128
    """Windows per optimiser step, over all devices together."""
    epochs: float = 10.0
    """Passes over the training windows; `steps` overrides it."""
    steps: int | None = None
    """Optimiser steps."""
    learning_rate: float = 5e-5
    weight_decay: float = 1e-3
    warmup_fraction: float = 0.01
    """Share of the steps with a linearly growing learning rate; a cosine to zero follows."""
    gradient_clip: float = 1.0
    """Largest gradient norm."""
    split: Literal["episode", "window"] = "episode"
    """Held-out data by whole episodes, or by windows as the paper splits (they overlap training windows)."""
    split_seed: int = 3072
    """Seed of the split (App. B.1)."""
    validation_fraction: float = 0.1
    """Share of the episodes or windows held out (App. B.1)."""
    seed: int = 0
    """Seed of the initial weights, the batches and the projections."""
    validate_every: int = 100
    """Steps between two validations."""
    validation_batches: int = 4
    """Batches per validation."""
    save_every: int = 200
    """Steps between two checkpoints."""
    keep: int = 2
    """Newest checkpoints kept; the best by validation rollout error is kept besides."""
    precision: PrecisionName = "32-true"
    """A Lightning Fabric precision. Only these three can train the model (docs/training.md)."""
    restarts: tuple[int, ...] | None = field(default=None, metadata=IF_SET)
    """Steps at which the learning rate warms up again, after a cosine that ended there: where a run was prolonged."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a training run besides the data."""

    preset: Memo[str] = "paper"
    """The preset that the values started from; they decide, not its name."""
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True)
class PriorConfig:
    """The action prior q(a_0 .. a_{H-1} | z, z_g, n) and how it is learnt on the frozen latents of a model."""

    horizon_blocks: int = 5
    """H, action blocks that it proposes."""
    farthest_blocks: int = 20
    """The largest n, blocks left to the goal, that it learns; goals of `long` are that far."""
    width: int = 512
    """Features of a hidden layer."""
    depth: int = 3
    """Hidden layers."""
    dropout: float = 0.05
    near_share: float = 0.75
    """Share of the pairs whose goal is at most H blocks away; the others are spread over all n."""
    beta: float = 0.5
    """Exponent of the variance that weighs each likelihood: 0 is maximum likelihood, 1 fits the mean like squares."""
    batch_size: int = 256
    """Pairs per step. Four times the steps with 256 fit PushT's held-out actions as well as 1024 in half the time."""
    steps: int = 12_000
    """Three minutes on two cores."""
    learning_rate: float = 2e-3
    """Largest rate of AdamW, after a short warm-up; a cosine takes it to 0."""
    weight_decay: float = 0.01
    seed: int = 0
    save_every: int = 1000
    """Steps between saves; a killed job goes on from the last."""


# --- planning and evaluation ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CEMConfig:
    """The cross-entropy method as the paper runs it (App. B.5)."""

    candidates: int = 300
    """S, action sequences per iteration."""
    iterations: int = 30
    elites: int = 30
    initial_std: float = 1.0
    """Standard deviation of the first samples, in normalised actions."""
    kind: Literal["cem"] = "cem"


@dataclass(frozen=True)
class GaussNewtonConfig:
    """Damped Gauss-Newton through A(c): |z_H - z_g|^2 + mu |a|^2 inside a box, for state-affine models."""

    starts: int = 8
    """Plans optimised side by side: the first is the mean action, the others are drawn."""
    iterations: int = 12
    halve_every: int = 2
    """Iterations after which the worse half of the starts is given up; good ones show early."""
    mu: float = 0.2
    """Price of leaving the mean action, per squared standard deviation: plans far from the data are not reached.
    Chosen on 100 Reacher tasks apart from the evaluation's, where 0.05 to 0.5 reach nearly as many, see LAB.md."""
    box_std: float = 1.75
    """Planned actions stay within this many standard deviations of the mean, and inside the bounds if there are any."""
    initial_damping: float = 1.0
    """Levenberg-Marquardt damping of the first step, as a share of the mean curvature."""
    kind: Literal["gauss-newton"] = "gauss-newton"


@dataclass(frozen=True)
class ICEMConfig:
    """Sample-efficient CEM: noise correlated in time, elites kept between iterations, the best plan returned."""

    candidates: int = 300
    iterations: int = 30
    elites: int = 30
    initial_std: float = 1.0
    noise_beta: float = 2.0
    """Exponent of the noise's power spectrum over the horizon, 1 / f^beta; 0 is white."""
    momentum: float = 0.1
    """Share of the old mean and deviation in the new ones."""
    kept_elites: int = 5
    """Best candidates that compete again in the next iteration."""
    kind: Literal["icem"] = "icem"


@dataclass(frozen=True)
class MPPIConfig:
    """Model predictive path integral control: every candidate counts, by the exponential of its cost."""

    candidates: int = 300
    iterations: int = 30
    initial_std: float = 1.0
    temperature: float = 0.2
    """In standard deviations of the candidates' costs, so that it means the same at every scale of cost."""
    min_std: float = 0.05
    """The deviation never falls below this."""
    kind: Literal["mppi"] = "mppi"


@dataclass(frozen=True)
class GradientConfig:
    """Adam on the actions themselves, through any differentiable transition."""

    starts: int = 8
    """Plans optimised side by side: the first is the mean action, the others are drawn."""
    iterations: int = 30
    learning_rate: float = 0.2
    """In standard deviations of an action."""
    kind: Literal["gradient"] = "gradient"


@dataclass(frozen=True)
class MapConfig:
    """The posterior mode: |z_H - z_g|^2 + w sum_k |(a_k - m_k) / s_k|^2 with the action prior's m and s."""

    w: float = 1.0
    """Price of leaving the prior's mean, per squared deviation: the variance of the last latent's error. Chosen on Cube
    tasks apart from the evaluation's, where 0.2 to 2 reach nearly as many, see LAB.md."""
    starts: int = 2
    """Plans optimised side by side: the prior's mean, the rest of the last plan where there is one, and draws."""
    iterations: int = 6
    halve_every: int = 2
    """Iterations after which the worse half of the starts is given up."""
    box_std: float = 3.0
    """Planned actions stay within this many standard deviations of the mean action, and inside the bounds."""
    initial_damping: float = 0.1
    """Levenberg-Marquardt damping of the first step, as a share of the mean curvature."""
    kind: Literal["map"] = "map"


@dataclass(frozen=True)
class ImitationConfig:
    """The action prior's mean as it is, without a search: amortised imitation of whoever made the data."""

    kind: Literal["prior"] = "prior"


@dataclass(frozen=True)
class CEMPriorConfig:
    """CEM whose first Gaussian is multiplied by the action prior."""

    search: CEMConfig = field(default_factory=CEMConfig)
    kind: Literal["cem-prior"] = "cem-prior"


@dataclass(frozen=True)
class ICEMPriorConfig:
    """iCEM whose first Gaussian is multiplied by the action prior."""

    search: ICEMConfig = field(default_factory=ICEMConfig)
    kind: Literal["icem-prior"] = "icem-prior"


@dataclass(frozen=True)
class MPPIPriorConfig:
    """MPPI whose first Gaussian is multiplied by the action prior."""

    search: MPPIConfig = field(default_factory=MPPIConfig)
    kind: Literal["mppi-prior"] = "mppi-prior"


@dataclass(frozen=True)
class CEMMapConfig:
    """The posterior mode by CEM, for models that have no matrix: the cost of `map`, candidates drawn from the prior."""

    w: float = 4.0
    """As in MapConfig. Of 1, 4 and 16 chosen on PushT tasks apart from the evaluation's, with LeWM, see LAB.md."""
    candidates: int = 64
    iterations: int = 6
    elites: int = 8
    kind: Literal["cem-map"] = "cem-map"


@dataclass(frozen=True)
class OwnPlannerConfig:
    """A user's own planner: a function that a person named."""

    function: str = ""
    """module:function"""
    kind: Literal["own"] = "own"


PlannerConfig = (
    CEMConfig
    | GaussNewtonConfig
    | ICEMConfig
    | MPPIConfig
    | GradientConfig
    | MapConfig
    | ImitationConfig
    | CEMPriorConfig
    | ICEMPriorConfig
    | MPPIPriorConfig
    | CEMMapConfig
    | OwnPlannerConfig
)
PriorPlanner = MapConfig | ImitationConfig | CEMPriorConfig | ICEMPriorConfig | MPPIPriorConfig | CEMMapConfig
"""Planners that need an action prior."""


@dataclass(frozen=True)
class ProtocolConfig:
    """How tasks are chosen and episodes are scored."""

    name: str = "clean"
    goal_offset_steps: int = 25
    """Environment steps from the start to the goal in the same stored episode."""
    budget_steps: int = 50
    """Environment steps that the agent may take."""
    horizon_blocks: int = 5
    """H, planned action blocks; all of them are executed before the next plan."""
    held_out: bool = True
    """Tasks from validation episodes only."""
    one_per_episode: bool = True
    """At most one task per stored episode."""
    min_distance: float = 3.0
    """Smallest distance from start to goal in success radii; 1 drops only pairs that are solved at the start.
    At 3 a random policy reaches 1 to 8 % of the goals, without the rule up to 37 %: docs/evaluation.md has a table."""
    variant: Variant = "clean"
    """Physics and success rule of the environment."""
    bound_actions: bool = True
    """Planned actions are kept inside the action space."""
    hold_steps: int = 1
    """Consecutive steps that success must last."""
    last_start: bool = False
    """Also allow the last valid start. The authors' code excludes it (`choice(len(valid) - 1)`); stable-worldmodel has
    since fixed this, so the same seed draws different tasks."""
