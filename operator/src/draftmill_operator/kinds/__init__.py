"""Kinds: what each kind of run contributes to the one life that all of them have. Pure.

`base` says what a kind has to answer, one module per kind answers it, `registry` lists them. Another kind is
another module, a line in the registry, a member of `observe.store.Kind`, and its CRD.
"""
