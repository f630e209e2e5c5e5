"""Plans read from files: stages, rules, and everything that can be wrong with them."""
