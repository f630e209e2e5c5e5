"""The trainplus command, one file a command group."""
