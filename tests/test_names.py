"""The public names are those that `__all__` lists, and they are there."""

import importlib
import inspect

import pytest

from pdlrecover import errors

LAYERS = ("errors", "field", "sharing", "learning", "adversary", "history")
PACKAGES = ["pdlrecover", *(f"pdlrecover.{layer}" for layer in LAYERS)]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_lists_every_public_name_once(name):
    package = importlib.import_module(name)
    assert len(set(package.__all__)) == len(package.__all__)
    public = {
        n
        for n in dir(package)
        if not n.startswith("_") and not inspect.ismodule(getattr(package, n))
    }
    assert public == set(package.__all__) - {"__version__"} | public & {"version"}


def test_every_error_is_in_the_tree_at_the_head_of_its_file():
    classes = {n: x for n, x in vars(errors).items() if inspect.isclass(x)}
    assert set(classes) == set(errors.__all__)
    defined = {n for n, x in classes.items() if issubclass(x, Exception)}
    assert set(classes) - defined == {"Setting", "Whom"}
    for name in defined:
        assert f" {name} " in f" {errors.__doc__} ".replace("\n", " \n ")
    assert all(issubclass(getattr(errors, name), errors.PDLRecoverError) for name in defined)
