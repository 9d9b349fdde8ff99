"""The step `export`: a SavedModel, tested with requests of real lists."""
