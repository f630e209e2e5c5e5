"""What a run may spend: cost before it, meters during it, stages, stops."""
