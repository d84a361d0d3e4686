"""Imports PyTorch as its argument says, then trains two steps."""

import importlib
import importlib.util
import multiprocessing
import pathlib
import pkgutil
import runpy
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent


def train():
    sys.argv[1:] = ["allocate"]
    runpy.run_path(str(HERE / "misbehave.py"), run_name="misbehave")["train"](2)


def sought():
    """Asks whether PyTorch is installed, as transformers, peft and datasets do."""
    for _ in range(3):
        assert importlib.util.find_spec("torch") is not None
    train()


def sought_by_pkgutil():
    assert pkgutil.get_loader("torch") is not None
    assert pkgutil.find_loader("torch") is not None
    train()


def sought_in_threads():
    seekers = [threading.Thread(target=importlib.util.find_spec, args=("torch",)) for _ in range(8)]
    for seeker in seekers:
        seeker.start()
    for seeker in seekers:
        seeker.join()
    train()


def in_thread():
    importer = threading.Thread(target=importlib.import_module, args=("torch",))
    importer.start()
    importer.join()
    train()


def by_spec():
    """Imports PyTorch as some lazy importers do."""
    spec = importlib.util.find_spec("torch")
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch"] = module
    spec.loader.exec_module(module)
    train()


def lazily():
    spec = importlib.util.find_spec("torch")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch"] = module
    spec.loader.exec_module(module)
    assert module.__version__
    train()


def by_other_finder():
    """A finder that asks all the others, and passes on their answers."""

    class Finder:
        asks = False

        def find_spec(self, name, path=None, target=None):
            if self.asks or name != "torch":
                return None
            self.asks = True
            try:
                return importlib.util.find_spec(name)
            finally:
                self.asks = False

    sys.meta_path.insert(0, Finder())
    train()


def at_second_try():
    """A module that PyTorch needs is broken at first."""
    sys.modules["torch.torch_version"] = None
    try:
        importlib.import_module("torch")
    except ImportError:
        print("failed", flush=True)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        if name != "torch._C" and not name.startswith("torch._C."):
            del sys.modules[name]
    train()


def reloaded():
    """PyTorch does not let itself be executed twice, but some of its modules do: steps are counted
    once."""
    torch = importlib.import_module("torch")
    try:
        importlib.reload(torch)
    except (ImportError, RuntimeError):
        print("failed", flush=True)
    importlib.reload(torch.cuda.memory)
    train()


def in_child(method="spawn"):
    child = multiprocessing.get_context(method).Process(target=sought)
    child.start()
    child.join()
    sys.exit(child.exitcode)


def in_forkserver():
    in_child("forkserver")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
