"""The stubs of the extension have its names and arguments. mypy.stubtest cannot tell, because functions of nanobind are
objects of their own."""
import ast
import inspect
import pathlib
import re

from convolume import _core

STUB = ast.parse(pathlib.Path(inspect.getfile(_core)).with_name("_core.pyi").read_text())
DEFINITIONS = {node.name: node for node in STUB.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def arguments_of(node):
    return [one.arg for one in node.args.args]


def runtime_arguments(function):
    """Returns the names in the signature that nanobind writes, or None if it has none."""
    ((text, *_),) = function.__nb_signature__
    inside = re.sub(r"\[[^\[\]]*\]", "", re.sub(r"\[[^\[\]]*\]", "", text))
    inside = inside[inside.index("(") + 1:inside.rindex(")")]
    return [one.split(":")[0].strip() for one in inside.split(",") if one.strip() not in ("", "/")]


def test_names_are_those_of_the_extension():
    assert set(DEFINITIONS) == {name for name in dir(_core) if not name.startswith("__")}


def test_functions_and_methods_have_the_arguments_of_the_extension():
    checked = 0
    for name, node in DEFINITIONS.items():
        found = getattr(_core, name)
        functions = [(found, node)] if isinstance(node, ast.FunctionDef) else [
            (getattr(found, one.name), one) for one in node.body
            if isinstance(one, ast.FunctionDef) and one.name != "__init__" and not one.decorator_list]
        for function, definition in functions:
            assert runtime_arguments(function) == arguments_of(definition), f"{name}: {definition.name}"
            checked += 1
    assert checked > 20


def test_properties_are_those_of_the_extension():
    for name, node in DEFINITIONS.items():
        if isinstance(node, ast.ClassDef) and not issubclass(getattr(_core, name), Exception):
            listed = {one.name for one in node.body if isinstance(one, ast.FunctionDef)} - {"__init__"}
            listed |= {one.target.id for one in node.body if isinstance(one, ast.AnnAssign)}
            own = {one for one in vars(getattr(_core, name))
                   if not one.startswith("__") or one in ("__call__", "__getitem__")}
            assert listed == own, name
