"""torch.distributed's collectives between CPUs: over shared memory in a node, over gloo between nodes.

``memory`` is what the ranks of a node share, ``reductions`` how numbers are added up, ``staged`` the
collectives in pieces, ``group`` torch's process group made of them, ``work`` what is under way, ``register``
its name in torch.
"""
