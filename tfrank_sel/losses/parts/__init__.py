"""Arguments that several losses share: targets, normalizers, lambda weights."""
