"""Files in which an exporter left operators of torch: every tool names them, and the exporter that writes ONNX's."""

import pytest

from tests.support import models
from unpool import InferenceSession
from unpool.errors import ModelError, UnpoolError, UnsupportedError
from unpool.runtime.lint.lint import lint
from unpool.runtime.lower.lower import lower
from unpool.runtime.rewrite.canonicalise import canonicalise
from unpool.runtime.rewrite.fix import fix
from unpool.runtime.rewrite.upgrade import upgrade

ATEN = ', "org.pytorch.aten" : 1'
NODES = {  # the operator, the name in messages
    "fallthrough": ("org.pytorch.aten.max_unpool2d (y, i)", "max_unpool2d", ATEN),
    "the fallback": ('org.pytorch.aten.ATen <operator = "max_unpool2d"> (y, i)', "max_unpool2d", ATEN),
    "a pool": ('org.pytorch.aten.ATen <operator = "max_pool2d_with_indices"> (y)', "max_pool2d_with_indices", ATEN),
    "a transposed convolution": ("org.pytorch.aten.conv_transpose2d (y, y)", "conv_transpose2d", ATEN),
    "a symbolic function": ("custom_domain.MaxUnpool2d (y, i)", "MaxUnpool2d", ', "custom_domain" : 1'),
    "another one": ("mmdeploy.Unpooling (y, i)", "Unpooling", ', "mmdeploy" : 1'),
}
EXPORTER = "unpool.torch.export"


def leftover(name):
    """A pool, and an operator of torch that reads its indices."""
    node, operator, imports = NODES[name]
    text = f"g (float[1, 2, 6, 8] x) => (float[a, b, c, d] z) {{ y, i = MaxPool <{models.POOL}> (x) z = {node} }}"
    return models.model(text, imports=imports), operator


@pytest.mark.parametrize("name", NODES)
def test_check_reports_it(name):
    """One finding, whose repair is the exporter."""
    model, operator = leftover(name)
    (found,) = lint(model)
    assert f"torch's {operator} " in found.problem
    assert EXPORTER in found.repair


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize(
    "use",
    [fix, InferenceSession, canonicalise, lambda model: lower(model, "any"), lambda model: upgrade(model, 22)],
    ids=["fix", "session", "canonicalise", "lower", "upgrade"],
)
def test_errors_name_it_and_the_exporter(use, name):
    """Nothing that runs the model passes over it."""
    model, operator = leftover(name)
    with pytest.raises(UnpoolError, match=operator) as caught:
        use(model)
    assert EXPORTER in str(caught.value)


@pytest.mark.parametrize("use", [lint, fix, InferenceSession])
def test_in_the_domain_of_onnx_it_breaks_the_standard(use):
    """Older exporters wrote it without a domain: the checker refuses it, and the error names the exporter."""
    text = f"g (float[1, 2, 6, 8] x) => (float z) {{ y, i = MaxPool <{models.POOL}> (x) z = max_unpool2d (y, i) }}"
    with pytest.raises((ModelError, UnsupportedError), match=EXPORTER):
        use(models.model(text))


def test_other_operators_of_other_domains_are_not_torchs():
    """Nodes of other kinds, and of onnxruntime's domains, are none of torch's pools."""
    text = "g (float[1, 2, 6, 8] x) => (float[a, b, c, d] z) { z = custom.Sharpen (x) }"
    model = models.model(text, imports=', "custom" : 1')
    assert not lint(model)
    with pytest.raises(UnsupportedError) as caught:
        InferenceSession(model)
    assert EXPORTER not in str(caught.value)
