"""One-line sabotages, as data: each must turn one of its tests red."""

from typing import NamedTuple


class Sabotage(NamedTuple):
    """In `file`, `old` becomes `new`; `tests` are pytest's arguments, of which one must fail."""

    name: str
    what: str
    file: str
    old: str
    new: str
    tests: str


LIES, LINKS = "tests/promises/test_disk_that_lies.py", "tests/promises/test_links_lead_nowhere.py"
SIZES, TERMINAL = "tests/promises/test_sizes_are_not_believed.py", "tests/promises/test_terminal_is_safe.py"
RECORDED = "tests/interop/test_hostile_recordings.py"
DURABLE, PINS = "tests/test_durable.py", "tests/test_pins.py"
TASKS, ROLLOUT, CELL = (
    "tests/evaluation/test_tasks.py",
    "tests/evaluation/test_rollout.py",
    "tests/evaluation/test_cell.py",
)
WINDOWS, OBJECTIVE, STATISTICS = "tests/data/test_windows.py", "tests/test_objective.py", "tests/test_statistics.py"

SABOTAGES = [
    # --- the disk
    Sabotage("S01", "fsync of a file dropped", "disk/durable.py",
             "        os.fsync(file.fileno())", "        pass", DURABLE),
    Sabotage("S02", "rename replaced by a copy", "disk/durable.py",
             "        os.replace(temporary, path)\n        _sync_directory(path.parent)\n\n\ndef temporary_beside",
             "        shutil.copyfile(temporary, path)\n        temporary.unlink()\n\n\ndef temporary_beside", LIES),
    Sabotage("S03", "files of a published directory not synced", "disk/durable.py",
             "            if file.is_file():\n                sync_file(file)\n", "            if file.is_file():\n                pass\n", LIES),
    Sabotage("S04", "hashes not compared", "disk/durable.py",
             "if hashes and sha256(file) != entry", "if False and sha256(file) != entry", DURABLE),
    Sabotage("S05", "lock shared", "disk/durable.py",
             "fcntl.flock(file, fcntl.LOCK_EX", "fcntl.flock(file, fcntl.LOCK_SH", f"{DURABLE} -k writer"),
    Sabotage("N01", "lock follows a link", "disk/durable.py", " | os.O_NOFOLLOW", "", LINKS),
    Sabotage("N02", "hard-linked lock accepted", "disk/durable.py", " or found.st_nlink > 1", "", LINKS),
    Sabotage("N03", "folder not locked", "disk/durable.py",
             "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass", LINKS),
    Sabotage("N04", "anything called .tmp- is a leftover", "disk/durable.py",
             "return _MADE_HERE.fullmatch(name) is not None", 'return name.startswith(".tmp-")', LINKS),
    Sabotage("N05", "temporary names can be guessed", "disk/durable.py", "secrets.token_hex(8)", "'0' * 16", f"{LINKS} -k guessed"),
    Sabotage("N06", "an import's source is known by name and size", "interop/hdf5.py",
             "            sha256=sha256,\n", "", "tests/data/test_hdf5.py -k same_name_and_size"),
    # --- budgets and the terminal
    Sabotage("N07", "tables of any size are read", "disk/dataset.py",
             "    _check_sizes(path / layout.ROOT_FILE, attributes)\n", "", SIZES),
    Sabotage("N08", "archives of any size are unpacked", "interop/archives.py", "if self._left < 0:", "if False:", SIZES),
    Sabotage("N09", "action deviations of zero are accepted", "disk/checkpoint.py",
             "and not (tensor > 0).all()", "and False", SIZES),
    Sabotage("N10", "escapes reach the terminal", "ground/terminal.py",
             "c if c.isprintable() or c in keep else", "c if True else", TERMINAL),
    Sabotage("N11", "task states are believed", "evaluation/tasks.py", "if len(state) != size:", "if False:", SIZES),
    # --- data
    Sabotage("S06", "window actions shifted by a step", "data/windows.py",
             "rows = self.dataset.first_step[episodes] + starts", "rows = self.dataset.first_step[episodes] + starts + 1", WINDOWS),
    Sabotage("S09", "validation windows leak into training", "data/windows.py",
             "np.flatnonzero(~in_validation), ", "np.arange(len(in_validation)), ", WINDOWS),
    Sabotage("S10", "clean takes training episodes", "evaluation/tasks.py",
             "    return require_some(held_out, protocol.name)", "    return np.arange(len(dataset.lengths))", TASKS),
    Sabotage("S31", "collected frames one step late", "jobs/collect.py",
             "every_state[:: recipe.frame_every]", "np.roll(every_state, 1, axis=0)[:: recipe.frame_every]",
             "tests/data/test_collect.py -k picture"),
    # --- learning
    Sabotage("S07", "rollout targets one frame early", "objective.py",
             "_runs_of(latents[:, 1:], steps))  # eq. 9", "_runs_of(latents[:, :-1], steps))  # eq. 9", OBJECTIVE),
    Sabotage("S08", "SIGReg not multiplied by N", "losses/sigreg.py", "return samples * (", "return 1.0 * (", OBJECTIVE),
    Sabotage("S39", "variance of a process's own share", "losses/variance.py",
             "sum_over_processes(centred(latents).square().sum(0))", "centred(latents).square().sum(0)",
             "tests/losses/test_terms_on_two_processes.py"),
    Sabotage("S40", "the triplet's negative is its own window", "losses/triplet.py",
             ".roll(1, dims=0)", "", "tests/losses/test_terms.py -k triplet"),
    Sabotage("S41", "an inverse model starts anew when resumed", "run_session.py",
             "            checkpoint.load_weights(self._regulariser, checkpoint.read_regulariser(newest), newest)\n", "",
             "tests/losses/test_objectives.py -k resumes"),
    Sabotage("S12", "stale base matrix", "model/affine.py",
             "if self._cached is None or not _all_equal(self._cached[0], parameters):", "if self._cached is None:",
             "tests/model/test_affine.py"),
    Sabotage("S16", "optimiser state not restored", "run_session.py",
             "            checkpoint.restore_optimizer(self._optimizer, self._names, state)\n", "",
             "tests/test_train.py -k resume"),
    Sabotage("S24", "the best checkpoint is the worst", "disk/checkpoint.py",
             "best = min(paths, key=_score)", "best = max(paths, key=_score)", "tests/test_checkpoint.py -k kept"),
    Sabotage("S25", "gradient clip dropped", "train.py",
             "max_norm=config.train.gradient_clip", "max_norm=1e9", PINS),
    Sabotage("S26", "weight decay dropped", "train.py",
             "weight_decay=config.train.weight_decay", "weight_decay=0.0", PINS),
    Sabotage("S27", "validation in training mode", "monitors.py",
             "    model.eval()\n", "", "tests/test_many_devices.py -k weights_of_one"),
    Sabotage("S28", "one dropout seed for every step", "train.py",
             'derive(seed, "dropout", step, ', 'derive(seed, "dropout", ', PINS),
    Sabotage("S35", "warm-up never ends", "train.py", "    if step < warmup:", "    if True:", "tests/test_train.py -k warms_up"),
    Sabotage("S38", "journal keeps rows after the checkpoint", "disk/journal.py",
             'lambda row: row["step"] <= done', "lambda row: True", "tests/promises/test_training_promises.py -k 'crashed and not full'"),
    # --- planning
    Sabotage("S11", "elites are the most expensive", "planning/cem.py",
             "costs.topk(count, dim=1, largest=False)", "costs.topk(count, dim=1, largest=True)", "tests/planning/test_cem.py"),
    Sabotage("S13", "LeWM's planner normalises actions twice", "model/transformer.py",
             "last_latent(self, history, past, encoder.encode_normalised(plans))", "last_latent(self, history, past, encoder(plans))",
             "tests/planning/test_costs.py"),
    Sabotage("S21", "channels swapped when planning", "planning/agent.py",
             "self.model.encode(pictures[None])[0]", "self.model.encode(pictures.flip(-1)[None])[0]", "tests/test_readme.py"),
    Sabotage("S32", "gates of modes constant when planning", "model/folded.py",
             "torch.cat([constant, gates, update.weight, *itself])", "torch.cat([constant, 0 * gates, update.weight, *itself])",
             "tests/planning/test_costs.py"),
    Sabotage("S18", "one stream for all tasks", "planning/agent.py",
             'torch_stream(self.seed, "plan", *key) for key in keys', 'torch_stream(self.seed, "plan") for key in keys',
             "tests/planning/test_agent_in_gymnasium.py"),
    Sabotage("S30", "the random policy ignores the task", "planning/policy.py",
             'stream(self.seed, "random-policy", *key)', 'stream(self.seed, "random-policy")', "tests/planning/test_costs.py"),
    Sabotage("S34", "plans in the mode it was given", "planning/agent.py", "self.model = model.eval()", "self.model = model", PINS),
    Sabotage("S37", "iCEM ignores bounds", "planning/icem.py",
             "            candidates = bounds.clamp(candidates)", "            pass", "tests/planning/test_planners.py -k icem"),
    # --- evaluation
    Sabotage("S14", "clean does not bound actions", "jobs/chunks.py",
             "if tasks.protocol.bound_actions else {}", "if False else {}", f"{CELL} -k bounded"),
    Sabotage("S15", "order of paired tasks unchecked", "evaluation/contests.py",
             "if [episode.task for episode in cell_a.episodes] != [episode.task for episode in cell_b.episodes]:", "if False:", PINS),
    Sabotage("S19", "Wald for Wilson", "evaluation/statistics.py",
             "denominator = 2 * (tasks + Z**2)", "denominator = 2 * tasks", STATISTICS),
    Sabotage("S20", "history reversed", "evaluation/rollout.py",
             "np.stack(attempt.frames[-count:])", "np.stack(attempt.frames[-count:][::-1])", ROLLOUT),
    Sabotage("S22", "held over gaps", "evaluation/rollout.py",
             "attempt.held + 1 if reached else 0", "attempt.held + int(reached)", ROLLOUT),
    Sabotage("S23", "imported goal one step early", "evaluation/rollout.py",
             "task.start_step + goal_offset_steps])", "task.start_step + goal_offset_steps - 1])", "tests/evaluation/test_imported.py"),
    Sabotage("S29", "one-sided McNemar", "evaluation/paired.py",
             "return min(1.0, 2 * float(", "return min(1.0, float(", STATISTICS),
    Sabotage("S33", "a changed checkpoint goes unnoticed", "jobs/chunks.py",
             'if checkpoint.identity(Path(job.run)) != job.inputs["run"]:', "if False:", f"{CELL} -k changed"),
    Sabotage("S36", "median over failures too", "jobs/cell.py",
             "steps = [record.steps_to_success for record in records if record.steps_to_success is not None]",
             "steps = [record.steps_taken for record in records]", f"{CELL} -k median"),
    # --- the prior, the closed loop and the explorer
    Sabotage("N12", "another checkpoint's prior is accepted", "planning/prior_files.py",
             '        ("checkpoint", model_sha256[:12], info.checkpoint_sha256[:12]),\n', "", "tests/jobs/test_prior_job.py"),
    Sabotage("N13", "the horizon does not shrink", "planning/agent.py",
             "return min(left[0], self.horizon_blocks)", "return self.horizon_blocks", "tests/planning/test_closed_loop.py"),
    Sabotage("N14", "the explorer knows every token", "explore/server.py",
             "return hmac.compare_digest(token.encode(), self.token.encode())", "return True", "tests/explore/test_guard.py -k token"),
    Sabotage("N15", "the explorer answers to any Host", "explore/server.py",
             'return "another Host"', "pass", "tests/explore/test_guard.py -k rebinding"),
    Sabotage("N16", "the explorer follows a link outside", "explore/folders.py",
             "if not real.is_relative_to(root.resolve()):", "if False:", "tests/explore/test_folders.py -k inside"),
    # --- studies and samplers
    Sabotage("N20", "the prior leaves the cost of cem-map", "planning/with_prior.py",
             "return distance(candidates) + price * away.square().sum(dim=(2, 3))", "return distance(candidates)",
             "tests/planning/test_map.py -k mode"),
    Sabotage("N21", "a step of a study does not wait for its training", "jobs/study.py",
             "self.strand[: len(earlier.strand)] == earlier.strand", "self.strand[:1] == earlier.strand",
             "tests/jobs/test_lanes.py -k waits"),
    Sabotage("N22", "a stopped study leaves its trainings behind", "jobs/lanes.py",
             "            process.terminate()", "            pass", "tests/jobs/test_lanes.py -k stop --timeout 90"),
    # --- other people's files
    Sabotage("S17", "pickles are loaded", "interop/weights/pt_child.py",
             "weights_only=True", "weights_only=False", "tests/promises/test_pt_files_are_read_apart.py"),
    # --- recordings of others
    Sabotage("N17", "pictures of any size are decoded", "interop/pictures.py",
             '                budget.require(where, f"a picture of {width} x {height} pixels", 3 * width * height)\n', "",
             f"{RECORDED} -k lance_picture"),
    Sabotage("N18", "a playlist is read as a video", "interop/video.py",
             '    "-format_whitelist",  # no playlist, which would name other files to read\n    "mov,mp4,avi,matroska,webm,gif",\n',
             "", f"{RECORDED} -k playlist"),
    Sabotage("N19", "arrays of a Minari file may lie elsewhere", "interop/minari_data.py",
             '    _require_own_content(place / "main_data.hdf5")\n', "", f"{RECORDED} -k minari"),
    Sabotage("N23", "a path template may be any format", "interop/lerobot.py",
             'or PLACE.sub("", text)', "", f"{RECORDED} -k absurd"),
    Sabotage("N24", "a Parquet file is believed", "interop/lerobot.py",
             '            budget.require(file, f"{opened.metadata.num_rows} rows with {values} values", size)\n', "",
             f"{RECORDED} -k parquet"),
    Sabotage("N25", "an episode is held however long it is", "interop/recordings.py",
             '    budget.require(name, f"{kept} frames of {size} pixels", kept * 3 * size**2)\n', "",
             f"{RECORDED} -k too_many_frames"),
]  # fmt: skip
