"""The parameter table: facts and roles of every parameter of a model.

``fact.py`` needs no torch, ``table.py`` does.
"""
