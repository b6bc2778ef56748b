"""The public names, and where each is defined."""

from saltwm.data.windows import Windows as Windows
from saltwm.diagnostics import propagation as propagation
from saltwm.disk.checkpoint import load as load
from saltwm.disk.dataset import Dataset as Dataset
from saltwm.envs import make_env as make_env
from saltwm.ground.config import CEMConfig as CEMConfig
from saltwm.ground.config import GaussNewtonConfig as GaussNewtonConfig
from saltwm.ground.config import GradientConfig as GradientConfig
from saltwm.ground.config import ICEMConfig as ICEMConfig
from saltwm.ground.config import MapConfig as MapConfig
from saltwm.ground.config import MPPIConfig as MPPIConfig
from saltwm.ground.config import PriorConfig as PriorConfig
from saltwm.ground.config import RunConfig as RunConfig
from saltwm.ground.errors import SaltError as SaltError
from saltwm.interop.recordings import Recording as Recording
from saltwm.interop.recordings import write_dataset as write_dataset
from saltwm.interop.solver_adapter import SolverAdapter as SolverAdapter
from saltwm.jobs.collect import Collect as Collect
from saltwm.jobs.diagnose import diagnose_run as diagnose_run
from saltwm.jobs.evaluate import Evaluate as Evaluate
from saltwm.jobs.evaluate import evaluate_policy as evaluate_policy
from saltwm.jobs.presets import run_config as run_config
from saltwm.jobs.train import Train as Train
from saltwm.losses.sigreg import sigreg as sigreg
from saltwm.model.actions import ActionEncoder as ActionEncoder
from saltwm.model.affine import StateAffine as StateAffine
from saltwm.model.encoder import Encoder as Encoder
from saltwm.model.transformer import TransformerPredictor as TransformerPredictor
from saltwm.model.world_model import WorldModel as WorldModel
from saltwm.planning.agent import Agent as Agent
from saltwm.planning.cem import Plan as Plan
from saltwm.planning.cem import cem as cem
from saltwm.planning.costs import terminal_cost as terminal_cost
from saltwm.planning.gauss_newton import gauss_newton as gauss_newton
from saltwm.planning.prior import ActionPrior as ActionPrior
from saltwm.planning.prior_files import load_prior as load_prior

__version__: str
