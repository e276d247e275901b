"""The parameter table: facts and roles of every parameter of a model.

``fact.py`` is a row of the table and ``patterns.py`` are the names that tell a role; they need no torch. ``table.py``
walks through a model; ``roles.py``, ``layers.py``, ``norms.py``, ``geometry.py`` and ``blocks.py`` each answer one of
its questions.
"""
