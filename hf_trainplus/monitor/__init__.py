"""What the hardware and the seconds do: devices, step clock, diagnosis, leaks."""
