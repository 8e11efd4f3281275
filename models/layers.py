"""What a layer is made of: weight matrices, an attention core or a recurrent state, and the rest.

A model is read into these few shapes (`kernelroof.models.spec`), and every figure of the estimate
follows from them: parameters, bytes in any format, FLOPs, cache. All sizes are element counts.
"""

from __future__ import annotations

from typing import NamedTuple


class Linear(NamedTuple):
    """A weight matrix [inputs, outputs], with the name that its module has within the layer.

    copies: matrices of this shape that are held: 1, or the number of routed experts.
    used: how many of the copies multiply each token (top-k); 0: held, but not run.
    dense: transformers multiplies each token by every copy, and by zero what was not chosen.
    per: "token": applied to every new token; "context": applied again to every cached token in each
        forward (the expansion of a latent cache); "logit": applied to the positions that get logits.
    bits: size of an element that the model's code fixes (a router held in float32 in a 16-bit model);
        None: the run's format.
    """

    name: str
    inputs: int
    outputs: int
    bias: bool = False
    copies: int = 1
    used: int = 1
    per: str = "token"
    bits: int | None = None
    dense: bool = False

    @property
    def run(self) -> int:
        """Copies that multiply each token."""
        return self.copies if self.dense else self.used

    @property
    def elements(self) -> int:
        """Elements of one matrix, without its bias."""
        return self.inputs * self.outputs


class Attention(NamedTuple):
    """The core of an attention: scores, softmax and weighted sum; its projections are linears.

    head_dim is the width of queries and keys, value_dim that of values. `window` is the number of
    latest tokens that a query sees, its own among them; None: all. `kept_width` is the number of
    elements that the layer's cache grows by per token (0 where it reads another layer's), and
    `read_width` what a query reads per token it sees.

    masked: Hugging Face hands this attention an explicit mask whatever the prompt, so that nothing is
    skipped. more_flops: FLOP per query-key pair besides scores and weighted sum (choosing keys, a second attention).
    sinks: a learned score per head joins the others in softmax, for which eager code copies them all.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int | None
    kept_width: int
    read_width: int
    masked: bool = False
    more_flops: int = 0
    sinks: bool = False


class State(NamedTuple):
    """A recurrent state of fixed size per sequence (state-space models, linear attention).

    elements and conv_elements are kept per sequence; `bits` is the size of a state's element, None
    for the run's own format. scan_flops is what the recurrence computes per token, the projections
    apart.
    """

    elements: int
    conv_elements: int
    bits: int | None
    scan_flops: int


class Part(NamedTuple):
    """A piece of a layer, as a reader of one kind (attention, state, MLP) describes it; fields as in `LayerGroup`."""

    linears: tuple[Linear, ...] = ()
    vectors: int = 0
    wide_vectors: int = 0
    attention: Attention | None = None
    state: State | None = None
    inner: int = 0
    inner_wide: int = 0
    products: int = 0


class LayerGroup(NamedTuple):
    """Layers that are alike, with their positions in the model."""

    indices: tuple[int, ...]
    linears: tuple[Linear, ...]
    vectors: int
    """Elements of norms, convolutions, routing biases and other small parameters, without biases of linears."""
    attention: Attention | None
    state: State | None
    inner: int
    """Elements per token that are alive at the widest moment inside the layer, its input and residual apart."""
    wide_vectors: int = 0
    """Small parameters that the model's code holds in float32 whatever the run's format."""
    products: int = 0
    """FLOP per token of products between activations, attention and recurrences apart."""
    label: str = ""
    """What kind of layers these are, in words."""
    inner_wide: int = 0
    """Of what is alive at the widest moment, elements that are held in float32 whatever the run's format."""

    @property
    def layers(self) -> int:
        return len(self.indices)


def attention(
    heads: int,
    kv_heads: int,
    head_dim: int,
    value_dim: int | None = None,
    window: int | None = None,
    keeps: bool = True,
) -> Attention:
    """Ordinary (multi-head, grouped-query, multi-query) attention, which keeps K and V of its own heads.

    `keeps` is False where the layer reads K and V that an earlier layer has kept.
    """
    value_dim = head_dim if value_dim is None else value_dim
    width = kv_heads * (head_dim + value_dim)
    return Attention(heads, kv_heads, head_dim, value_dim, window, keeps * width, width)


def join(*parts: Part) -> Part:
    """One part from several: at most one of them may have an attention, and one a state."""
    widest = max(parts, key=lambda p: p.inner + 2 * p.inner_wide, default=Part())
    return Part(
        linears=tuple(li for p in parts for li in p.linears),
        vectors=sum(p.vectors for p in parts),
        wide_vectors=sum(p.wide_vectors for p in parts),
        attention=next((p.attention for p in parts if p.attention), None),
        state=next((p.state for p in parts if p.state), None),
        inner=widest.inner,
        inner_wide=widest.inner_wide,
        products=sum(p.products for p in parts),
    )
