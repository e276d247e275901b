"""The parameter table: facts and roles of every parameter of a model."""
