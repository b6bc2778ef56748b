"""What a user of the installed package meets: public names, extras that are missing, the editable install."""

import functools
import http.server
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import saltwm
from saltwm.ground.errors import UsageError
from saltwm.ground.extras import EXTRAS, needs, require

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {"lance": "pylance"}
"""Modules whose package has another name."""


@pytest.mark.parametrize("name", [name for name in dir(saltwm) if not name.startswith("_")])
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(saltwm, name).__name__.split(".")[-1] == name


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = saltwm.lode  # type: ignore[attr-defined]


def test_importing_saltwm_imports_no_torch() -> None:
    code = "import sys, saltwm; assert saltwm.__version__; dir(saltwm); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_extras_table_is_that_of_the_project_file() -> None:
    for extra, modules in EXTRAS.items():
        declared = {re.split(r"[>=<\[]", line)[0] for line in PROJECT["optional-dependencies"][extra]}
        assert declared == {DISTRIBUTIONS.get(module, module) for module in modules}


def test_constraints_pin_every_package_that_the_project_names() -> None:
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()}
    wanted = [
        *PROJECT["dependencies"],
        *(line for lines in PROJECT["optional-dependencies"].values() for line in lines),
    ]
    names = {re.split(r"[>=<\[]", line)[0].lower().replace("_", "-") for line in wanted} - {"saltwm"}
    assert names - pinned == {"wandb"}  # it talks to a server: never installed here


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def versions_by_name(text: str) -> dict[str, str]:
    return {plain(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)}


def hashed(file: str) -> dict[str, str]:
    """Version of each package of a file of requirements/; every one must carry a hash."""
    text = (ROOT / "requirements" / file).read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if "==" in line]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[\w.-]+==\S+( +--hash=sha256:[0-9a-f]{64})+", line), line
    return versions_by_name(text)


@pytest.fixture(scope="module")
def pin() -> Any:
    """requirements/pin.py, the program behind `make pins`."""
    spec = importlib.util.spec_from_file_location("pin", ROOT / "requirements" / "pin.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_whatever_make_installs_is_pinned_with_its_hashes(pin: Any) -> None:
    runtime, dev, fuzz = hashed("runtime.txt"), hashed("dev.txt"), hashed("fuzz.txt")
    assert set(runtime) == pin.needed(pin.ROOTS["runtime"])
    assert {**dev, **runtime}.keys() == pin.needed(pin.ROOTS["dev"])
    assert (ROOT / "requirements" / "dev.txt").read_text().splitlines()[1] == "-r runtime.txt"
    pinned = versions_by_name((ROOT / "constraints.txt").read_text())
    torch = hashed("torch-cpu.txt")["torch"]
    assert {**dev, **runtime, **fuzz, "torch": torch.removesuffix("+cpu")} == pinned


def test_make_installs_nothing_without_a_hash_unless_told_to() -> None:
    def installs(*words: str) -> list[str]:
        told = ["make", "-n", "-B", "-o", "pyproject.toml", ".venv/.dev", *words]
        lines = subprocess.run(told, cwd=ROOT, check=True, capture_output=True, text=True).stdout.replace("\\\n", "")
        return [part.strip() for part in re.split(r"&&|\|\||;|\n", lines) if "pip install" in part]

    free = [command for command in installs() if "--require-hashes" not in command]
    assert [command.split("check ")[1] for command in free] == [
        "-c constraints.txt torch",  # said aloud, where the tested CPU build is not offered
        "--no-deps --no-build-isolation -e .",
    ]
    assert not any("--require-hashes" in command for command in installs("HASHES=no"))


def test_the_hashes_of_an_index_are_those_of_the_asked_version(pin: Any, tmp_path: Path) -> None:
    page = tmp_path / "one-thing" / "index.html"
    page.parent.mkdir()
    files = {
        "one_thing-1.0-py3-none-any.whl": "a" * 64,
        "one_thing-1.0.tar.gz": "b" * 64,
        "one_thing-1.0.1-py3-none-any.whl": "c" * 64,
        "one_thing-1.0.exe": "d" * 64,
    }
    page.write_text("".join(f'<a href="/f/{file}#sha256={digest}">x</a>' for file, digest in files.items()))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    handler.log_message = lambda *words: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_port}"
        assert pin.hashes(index, "one-thing", "1.0") == ["a" * 64, "b" * 64]
        with pytest.raises(SystemExit, match=r"one-thing==2\.0: the index has no file of it"):
            pin.hashes(index, "one-thing", "2.0")
        server.shutdown()


def test_a_missing_extra_is_one_line_with_the_command_that_gets_it() -> None:
    said = r"^a test needs onnx, .*; get it with: pip install '\.\[export\]' in the folder of saltwm$"
    with pytest.raises(UsageError, match=said), needs("export", "a test"):
        raise ModuleNotFoundError("No module named 'onnx'", name="onnx")
    with pytest.raises(UsageError, match="a test needs no_such_module"):
        require("export", "a test", "no_such_module")


def test_another_missing_module_keeps_its_traceback() -> None:
    with pytest.raises(ModuleNotFoundError, match="numpyy"), needs("export", "a test"):
        raise ModuleNotFoundError("No module named 'numpyy'", name="numpyy")


@pytest.mark.parametrize(
    ("hidden", "command", "said"),
    [
        ("pymunk", "from saltwm.envs import make_env; make_env('push-t')", "environment push-t needs pymunk"),
        ("mujoco", "from saltwm.envs import make_env; make_env('reacher')", "environment reacher needs mujoco"),
        ("ogbench", "from saltwm.envs import make_env; make_env('cube')", "environment cube needs ogbench"),
        (
            "onnx",
            "import pathlib; from saltwm.interop.weights.onnx_export import export_onnx;"
            "export_onnx(pathlib.Path('checkpoints/two-room-salt'), pathlib.Path('work/no-such-folder'))",
            "an ONNX export needs onnx",
        ),
    ],
)
def test_a_verb_whose_package_is_missing_says_so(hidden: str, command: str, said: str) -> None:
    hide = (
        "import sys, importlib.abc\n"
        "class Hidden(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] == {hidden!r}: raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "import importlib.util as util; real = util.find_spec\n"
        f"util.find_spec = lambda name, *rest: None if name == {hidden!r} else real(name, *rest)\n"
    )
    catch = f"try:\n    {command}\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    found = subprocess.run([sys.executable, "-c", hide + catch], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.startswith(f"UsageError {said}, which is not installed")


def test_an_editable_install_lies_on_the_path(tmp_path: Path) -> None:
    """A clone in a folder called saltwm hides a package from the folder above, unless the package lies on the path."""
    build = (
        "import zipfile; from setuptools import build_meta;"
        f"name = build_meta.build_editable({str(tmp_path)!r});"
        f"print(zipfile.ZipFile({str(tmp_path)!r} + '/' + name).namelist()[0])"
    )
    assert run(build, ROOT).splitlines()[-1].endswith(".pth")
    (tmp_path / "saltwm" / "docs").mkdir(parents=True)
    found = f"import sys; sys.path.append({str(ROOT)!r}); import saltwm; print(saltwm.Dataset.__name__)"
    assert run(found, tmp_path).strip() == "Dataset"


def run(code: str, folder: Path) -> str:
    """What `code` prints in a fresh process that stands in `folder` and has no other path to saltwm."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_shipped_models_and_data_load_by_name_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert saltwm.load("two-room-salt").world.environment == "two-room"
    assert saltwm.Dataset.open("two-room-data", verify="sizes").world.environment == "two-room"
    with pytest.raises(UsageError, match="two-room-pepper: no training run is there"):
        saltwm.load("two-room-pepper")


def test_a_folder_of_the_user_s_comes_before_what_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two-room-salt").mkdir()
    with pytest.raises(UsageError, match="not a training run or checkpoint"):
        saltwm.load("two-room-salt")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns(".git", ".venv", "work", "results", "build", "*-lewm", "__pycache__", "*-data")
    shutil.copytree(ROOT, source, ignore=ignored)
    shutil.copytree(ROOT / "checkpoints" / "small", source / "checkpoints" / "small", dirs_exist_ok=True)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), "."]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_is_small_and_plans_outside_a_checkout(wheel: Path, tmp_path: Path) -> None:
    assert wheel.stat().st_size < 30e6
    unpacked = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(unpacked)
    assert {"saltwm/py.typed", "saltwm/__init__.pyi", "saltwm/shipped/cube-salt/weights.safetensors"} <= set(names)
    code = (
        "import saltwm; print(saltwm.__file__); model = saltwm.load('two-room-salt'); print(model.world.environment);"
        "print(len(saltwm.Dataset.open('two-room-data')))"
    )
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    there = {"capture_output": True, "text": True, "cwd": tmp_path, "env": environment}
    found = subprocess.run([sys.executable, "-c", code], check=True, **there).stdout.splitlines()
    assert found == [str(unpacked / "saltwm" / "__init__.py"), "two-room", "40"]
    demo = [sys.executable, "-m", "saltwm", "demo", "two-room", "--json"]
    assert json.loads(subprocess.run(demo, check=True, **there).stdout)["reached"] is True


def test_what_is_shipped_is_spoken_of_by_name_where_it_is_not_below(tmp_path, monkeypatch, capsys) -> None:
    from saltwm.cli import main
    from saltwm.disk.shipped import names, shelf_folder, spoken

    assert {"reacher-salt", "cube-salt", "two-room-salt", "push-t-salt"} == set(names("-salt"))
    monkeypatch.chdir(shelf_folder().parent)
    assert spoken(shelf_folder() / "cube-salt") == Path(shelf_folder().name) / "cube-salt"
    monkeypatch.chdir(tmp_path)
    assert spoken(shelf_folder() / "cube-salt") == Path("cube-salt")
    (tmp_path / "cube-salt").mkdir()  # the name leads to the user's own now
    assert spoken(shelf_folder() / "cube-salt") == shelf_folder() / "cube-salt"
    assert spoken(tmp_path.parent) == tmp_path.parent
    with pytest.raises(SystemExit):
        main(["demo", "cube-double"])
    advised = capsys.readouterr().err.partition("make what is missing with: ")[2]
    assert str(shelf_folder()) not in advised
    assert advised.rstrip().endswith("saltwm demo cube-double --checkpoints checkpoints")
