"""Programs that the command of a plan starts."""
