"""Files of runs: folders, manifests, and copies in stores."""
