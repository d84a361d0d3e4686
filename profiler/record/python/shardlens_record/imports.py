"""Changes modules right after they have been executed. Looking for a module, as
importlib.util.find_spec does, executes nothing and may happen any number of times."""

import sys

from .guards import guarded


class _Execution:
    """Runs a loader's exec_module, and then the changes for the module that was executed."""

    def __init__(self, run, changes):
        self.run = run
        self.changes = changes

    def __call__(self, module):
        self.run(module)
        _change(module, self.changes)


def _change(module, changes):
    for change in changes:
        guarded(f"{module.__name__} is not watched as it should be")(change)(module)


class _Finder:
    """Finds modules as the finders behind it do. The loader of a listed module gets the changes to
    make when it has executed the module; it keeps its own class."""

    def __init__(self, changes, note):
        self.changes = changes
        self.note = note

    def find_spec(self, name, path=None, target=None):
        if self.note is not None:
            self.note(name)
        if name not in self.changes:
            return None
        spec = self._found(name, path, target)
        if spec is not None and spec.loader is not None:
            self._watch(spec.loader, name)
        return spec

    def _found(self, name, path, target):
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                return spec
        return None

    @guarded("PyTorch is loaded in a way that cannot be watched")
    def _watch(self, loader, name):
        run = loader.exec_module
        if not isinstance(run, _Execution):  # another finder may have come here already
            loader.exec_module = _Execution(run, self.changes[name])


def change_when_executed(changes, note=None):
    """Calls the functions that `changes` lists for a module's name with that module, once it has
    been executed. A module that is already loaded, such as one that a .pth file of the environment
    imports, is changed at once. `note` is called with the name of each module that is looked for."""
    sys.meta_path.insert(0, _Finder(changes, note))
    for name in changes:
        if name in sys.modules:
            _change(sys.modules[name], changes[name])
