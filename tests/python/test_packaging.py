"""What is packed for PyPI, and what importing the package costs."""

import pathlib
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent


def tracked_files(folder):
    return {
        path.relative_to(ROOT)
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_sdist_holds_what_the_wheel_is_built_from_and_no_more(tmp_path, monkeypatch):
    backend = pytest.importorskip("scikit_build_core.build")
    monkeypatch.chdir(ROOT)
    with tarfile.open(tmp_path / backend.build_sdist(str(tmp_path))) as archive:
        names = {pathlib.Path(*pathlib.Path(member.name).parts[1:]) for member in archive if member.isfile()}
    for folder in ("cmake", "configs", "include", "src", "python/deltanet"):
        assert tracked_files(folder) <= names
    assert {name.parts[0] for name in names} == {
        *("cmake", "configs", "include", "src", "python"),
        *("CHANGELOG.md", "CITATION.cff", "CMakeLists.txt", "CONTRIBUTING.md", "LICENSE", "PKG-INFO", "README.md"),
        "pyproject.toml",
    }
    assert pathlib.Path("python/CMakeLists.txt") in names
    assert not any(name.suffix in (".so", ".o", ".pyc") for name in names)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_import_needs_no_torch():
    result = run("import sys, deltanet; print({'torch', 'transformers', 'lm_eval', 'matplotlib'} & set(sys.modules))")
    assert result.stdout == "set()\n", result.stderr


def test_ops_without_torch_say_what_to_install():
    result = run("import sys; sys.modules['torch'] = None; import deltanet, deltanet.ops")
    assert "ImportError: deltanet.ops needs PyTorch; run: pip install deltanet[torch]" in result.stderr


def test_nothing_is_left_behind_at_exit():
    pytest.importorskip("torch")
    call = "ops.recurrence('delta_net', *torch.ones(3, 1, 1, 1, 4), beta=torch.ones(1, 1, 1))"
    result = run(f"import torch; from deltanet import ops; {call}")
    assert (result.returncode, result.stderr) == (0, "")


def test_stub_names_what_the_module_has():
    import deltanet

    stub = (pathlib.Path(deltanet._core.__file__).parent / "_core.pyi").read_text(encoding="utf-8")
    for name in dir(deltanet._core):
        if not name.startswith("__"):
            assert f"def {name}(" in stub or f"class {name}" in stub or f"{name}:" in stub, name
    assert (pathlib.Path(deltanet.__file__).parent / "py.typed").exists()
