"""Replay job traces through :mod:`gangline.placement` on simulated clusters, beside simpler policies. Pure.

Read in this order: ``trace`` (what arrives), ``site`` (the simulated nodes), ``speeds`` (what a placement is
worth), ``policies`` (who decides), ``replay`` (the events), ``figures`` (what is reported). ``trace_text``
reads and writes traces; ``plots`` is the one module that writes files.
"""
