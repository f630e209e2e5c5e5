"""What a run will cost before it runs: the model in numbers, its operations and memory, the hardware."""
