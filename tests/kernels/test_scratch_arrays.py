"""Kernels take the address of a scratch array where the array still lives: Numba frees it behind its last mention."""

import ast
from pathlib import Path

import unpool

KERNELS = sorted((Path(unpool.__file__).parent / "kernels" / "cpu").rglob("*.py"))
MAKERS = {"empty", "zeros", "empty_like", "zeros_like"}


def functions(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def inside(node, *, loops):
    """What a function holds, but for other functions, and for what is in a loop if `loops` is false."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) or (isinstance(child, ast.For | ast.While) and not loops):
            continue
        yield child
        yield from inside(child, loops=loops)


def makes_array(value):
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    calls = [one.func for one in values if isinstance(one, ast.Call)]
    return any(isinstance(call, ast.Attribute) and call.attr in MAKERS for call in calls)


def dangling(function):
    """Names of arrays made in a function whose address is taken in it outside of every loop."""
    made = {
        name.id
        for node in inside(function, loops=True)
        if isinstance(node, ast.Assign) and makes_array(node.value)
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }
    return {
        node.args[0].id
        for node in inside(function, loops=False)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "address_of" and ast.unparse(node.args[0]) in made
    }


def test_no_address_outlives_its_array() -> None:
    """The address of a scratch array is taken inside the loop that uses it."""
    found = [
        (path.name, each.name, dangling(each)) for path in KERNELS for each in functions(ast.parse(path.read_text()))
    ]
    assert [one for one in found if one[-1]] == []


def test_a_dangling_address_is_found() -> None:
    """An address taken before the loop is reported, one inside it is not."""
    text = "def f(n):\n a, b = np.empty(n), np.zeros(n)\n p = address_of(a)\n for i in range(n):\n  g(p, address_of(b))"
    assert dangling(ast.parse(text).body[0]) == {"a"}
