"""What the page calls a node."""


def title(operator: str, node: str) -> str:
    """The name of a node with its operator, which many names begin with.

    >>> title("MaxPool", "pool_1"), title("MaxPool", "MaxPool->y")
    ('MaxPool pool_1', 'MaxPool->y')
    """
    return node if node.startswith(operator) else f"{operator} {node}"
